"""Draw docs/images/report-TAB.png: records a run of a pipeline on two instances, and takes each tab of its report.

PATH=.venv/bin:$PATH python scripts/report_pictures.py        needs Debian's packages chromium and chromium-driver
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from selenium import webdriver

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs/images"
RUN = "poprun-py --trace run --num-instances 2 --num-replicas 2 --ipus-per-replica 2 python"
WIDTH, LEAST, MOST = 1200, 320, 900

READY = """const done = arguments[0], look = () => document.body.dataset.ready ? done() : setTimeout(look, 20);
look()"""
#: Shows a part of a step of instance 0 in the middle of the run.
PART_OF_A_STEP = """const lane = timeline.lanes.find(one => one.label === "instance 0");
const steps = [...lane.name.keys()].filter(i => timeline.names[lane.name[i]].name === "step");
const at = steps[steps.length >> 1];
timeline.show(lane.begin[at] + lane.length[at] * 0.5, lane.begin[at] + lane.length[at] * 0.52);"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*RUN.split(), str(ROOT / "examples/pipeline.py")], cwd=folder, check=True)
        subprocess.run(["ipu-emu", "report", "run", "--html", "run.html"], cwd=folder, check=True)
        page = Path(folder) / "run.html"
        page.write_text(page.read_text().replace(f"{ROOT}/", ""))  # where the project happens to be
        driver = browser()
        try:
            driver.get(page.as_uri())
            driver.execute_async_script(READY)
            for button in driver.find_elements("css selector", "nav button"):
                take(driver, button)
        finally:
            driver.quit()


def browser() -> Any:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars", f"window-size={WIDTH},{MOST}"):
        options.add_argument(f"--{flag}")
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def take(driver: Any, button: Any) -> None:
    """A picture of a tab, as high as what it shows, at most ``MOST``."""
    tab = button.get_attribute("data-tab")
    driver.set_window_size(WIDTH, MOST)
    button.click()
    if tab == "time-line":
        driver.execute_script(PART_OF_A_STEP)
    shown = driver.execute_script(
        "return document.querySelector('section:not([hidden])').getBoundingClientRect().bottom"
    )
    frame = driver.execute_script("return window.outerHeight - window.innerHeight")
    driver.set_window_size(WIDTH, int(min(max(shown, LEAST), MOST)) + frame)
    driver.save_screenshot(str(TARGET / f"report-{tab}.png"))
    print(f"wrote {TARGET / f'report-{tab}.png'}")


if __name__ == "__main__":
    main()
