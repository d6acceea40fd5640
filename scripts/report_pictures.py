"""Draw docs/images/report-TAB.png: records a run of a pipeline on two instances, and takes each tab of its report.

report-slow-data.png and report-fast-data.png are timelines of the case of docs/guides/why-is-it-slow.md.

PATH=.venv/bin:$PATH python scripts/report_pictures.py        needs Debian's packages chromium and chromium-driver
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs/images"
RUN = "poprun-py --trace run --num-instances 2 --num-replicas 2 --ipus-per-replica 2 python"
WIDTH, LEAST, MOST = 1200, 320, 900

READY = """const done = arguments[0], look = () => document.body.dataset.ready ? done() : setTimeout(look, 20);
look()"""
#: Done when the charts of the tab that is shown are drawn.
DRAWN = """const done = arguments[0], look = () =>
    document.querySelector("section:not([hidden]) .chart:not([data-drawn])") ? setTimeout(look, 20) : done();
look()"""
#: Shows a part of a step of instance 0 in the middle of the run.
PART_OF_A_STEP = """const lane = timeline.lanes.find(one => one.label === "instance 0");
const steps = [...lane.name.keys()].filter(i => timeline.names[lane.name[i]].name === "step");
const at = steps[steps.length >> 1];
timeline.show(lane.begin[at] + lane.length[at] * 0.5, lane.begin[at] + lane.length[at] * 0.52);"""


#: Shows three steps in the middle of the run.
THREE_STEPS = """const lane = timeline.lanes.find(one => one.label.startsWith("process"));
const steps = [...lane.name.keys()].filter(i => timeline.names[lane.name[i]].name === "step");
const at = steps[steps.length >> 1], last = steps[(steps.length >> 1) + 2];
timeline.show(lane.begin[at] - lane.length[at] * 0.2, lane.begin[last] + lane.length[last] * 1.2);"""
CASE = {"feed": "slow-data", "ahead": "fast-data"}


def main() -> None:
    pipeline()
    for turn, name in CASE.items():
        data_case(turn, name)


def data_case(turn: str, name: str) -> None:
    """The timeline of a run of which the data are prepared slowly or fast."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["python", str(ROOT / "examples/turned_digits.py"), "--turn", turn]
        subprocess.run(command, cwd=folder, check=True, env={**os.environ, "IPU_EMU_TRACE": "run"})
        with opened(Path(folder)) as driver:
            take(driver, driver.find_element("css selector", "[data-tab=time-line]"), name, THREE_STEPS)


@contextmanager
def opened(folder: Path) -> Iterator[Any]:
    """The page of the run in a folder."""
    subprocess.run(
        ["ipu-emu", "report", "run", "--html", "run.html"], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    page = folder / "run.html"
    page.write_text(page.read_text().replace(f"{ROOT}/", ""))  # where the project happens to be
    driver = browser()
    try:
        driver.get(page.as_uri())
        driver.execute_async_script(READY)
        yield driver
    finally:
        driver.quit()


def pipeline() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*RUN.split(), str(ROOT / "examples/pipeline.py")], cwd=folder, check=True)
        with opened(Path(folder)) as driver:
            for button in driver.find_elements("css selector", "nav button"):
                take(driver, button, button.get_attribute("data-tab"), PART_OF_A_STEP)


def browser() -> Any:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars", f"window-size={WIDTH},{MOST}"):
        options.add_argument(f"--{flag}")
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def take(driver: Any, button: Any, name: str, view: str) -> None:
    """A picture of a tab, as high as what it shows, at most ``MOST``; ``view`` chooses the part of the timeline."""
    driver.set_window_size(WIDTH, MOST)
    button.click()
    driver.execute_async_script(DRAWN)
    if button.get_attribute("data-tab") == "time-line":
        driver.execute_script(view)
    shown = driver.execute_script(
        "return document.querySelector('section:not([hidden])').getBoundingClientRect().bottom"
    )
    frame = driver.execute_script("return window.outerHeight - window.innerHeight")
    driver.set_window_size(WIDTH, int(min(max(shown, LEAST), MOST)) + frame)
    driver.save_screenshot(str(TARGET / f"report-{name}.png"))
    print(f"wrote {TARGET / f'report-{name}.png'}")


if __name__ == "__main__":
    main()
