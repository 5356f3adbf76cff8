"""Looks at the built site in a browser: `python docs/tools/check_pages.py site`.

Every page is opened from the disk, 1400 and 390 pixels wide. Nothing may be cut off,
the page may not scroll sideways, and the search must find a word. `--shots folder`
saves pictures. Without Chromium or its driver nothing is checked, and the command says
so.
"""

import argparse
import os
import pathlib
import shutil
import sys

WIDTHS = (1400, 390)
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--allow-file-access-from-files",
)
WORD = "temperature"  # what the search is asked for
SHOWN = (
    "index.html",
    "quickstart.html",
    "regression.html",
    "classification.html",
    "choosing.html",
    "performance.html",
    "api/optimizers.html",
)

# Code is cut off if it is wider than its frame; on a phone its frame scrolls.
CUT_OFF = """
const wide = document.documentElement.scrollWidth > window.innerWidth + 1;
const found = wide ? ["the page, which is " + document.documentElement.scrollWidth
    + " pixels wide"] : [];
if (window.innerWidth > 1000) {
  for (const code of document.querySelectorAll(".md-content pre code, .equation")) {
    if (code.scrollWidth > code.clientWidth + 1) {
      found.push(code.textContent.trim().split("\\n").sort(
        (a, b) => b.length - a.length)[0]);
    }
  }
}
for (const image of document.querySelectorAll(".md-content img")) {
  if (!image.complete || !image.naturalWidth) found.push("image " + image.src);
}
return found;
"""


def browser():
    """A driver of Chromium, or None with a message if there is none."""
    programs = [shutil.which("chromium"), shutil.which("chromedriver")]
    try:
        from selenium import webdriver
    except ImportError:
        programs.append(None)
    if None in programs:
        print("== no chromium, chromedriver or selenium: nobody looked at the pages")
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for argument in ARGUMENTS:
        options.add_argument(argument)
    os.environ["SE_OFFLINE"] = "true"  # nothing is fetched
    return webdriver.Chrome(options, webdriver.ChromeService(programs[1]))


def complaints(driver, site, shots):
    """A sentence for each thing that is wrong."""
    for width in WIDTHS:
        # A window cannot be narrower than 500 pixels, a device can.
        metrics = {"width": width, "height": 1400, "deviceScaleFactor": 1}
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", metrics | {"mobile": width < 500}
        )
        for path in sorted(site.rglob("*.html")):
            name = path.relative_to(site).as_posix()
            driver.get(path.resolve().as_uri())
            for found in driver.execute_script(CUT_OFF):
                yield f"{name} at {width} pixels cuts off: {found}"
            if shots and name in SHOWN:
                target = shots / f"{name.replace('/', '_')}-{width}.png"
                driver.save_screenshot(str(target))
    if not search_answers(driver, site):
        yield f"the search does not find {WORD!r} when the site is opened from the disk"


def search_answers(driver, site):
    """Whether the search finds a word."""
    from selenium.common import TimeoutException
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.get((site / "index.html").resolve().as_uri())
    driver.execute_script("document.querySelector('#__search').click()")
    driver.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys(WORD)
    count = "return document.querySelectorAll('.md-search-result__item').length"
    try:
        WebDriverWait(driver, 20).until(lambda found: found.execute_script(count))
    except TimeoutException:
        return False
    return True


def main(argv=None):
    """Check all pages. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=pathlib.Path)
    parser.add_argument("--shots", type=pathlib.Path, help="folder for pictures")
    args = parser.parse_args(argv)
    if args.shots:
        args.shots.mkdir(parents=True, exist_ok=True)
    driver = browser()
    if driver is None:
        return 0
    try:
        found = list(complaints(driver, args.site, args.shots))
    finally:
        driver.quit()
    print("\n".join(found) or "== a browser shows all pages whole, and searches them")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
