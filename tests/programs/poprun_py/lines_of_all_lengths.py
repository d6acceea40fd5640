"""Write 3,000 lines of 0 to 299 letters, each with its number."""

import os

for number in range(3000):
    os.write(1, b"%06d %s\n" % (number, b"x" * (number % 300)))
