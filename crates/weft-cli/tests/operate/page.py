"""The monitor's page in a headless Chromium: page.py URL FOLDER. Prints each step that it has seen, waits for a line
before each event, and writes screenshots to the folder."""

import sys
from pathlib import Path

from selenium.webdriver.common.by import By

sys.path.insert(0, str(Path(__file__).parents[1]))

from chromium import Chromium, say  # noqa: E402

url, folder = sys.argv[1:]
page = Chromium(folder, 1500, 1300)
driver, until, texts, picture = page.driver, page.until, page.texts, page.picture

try:
    driver.get(url)
    # Two hosts, and calls between them that have a colour and a latency.
    until("two hosts", lambda: len(texts("#matrix th[scope=row]")) == 2)
    until("calls", lambda: len(driver.find_elements(By.CSS_SELECTOR, "#matrix td[class^=h]")) >= 2)
    until("latency", lambda: len(texts("#heat .row")) >= 2)
    until("talkers", lambda: any("watched_ping" in text for text in texts("#talkers tr")))
    picture("hosts")
    say("shows both hosts")

    driver.execute_script("document.querySelector('#grain input[value=by_program]').click()")
    until("three programs", lambda: len(texts("#matrix th[scope=row]")) == 3)
    assert all("watched_ping" in text for text in texts("#matrix th[scope=row]"))
    until("history", lambda: len(driver.find_elements(By.CSS_SELECTOR, "#heat rect")) > 10)
    picture("programs")
    say("shows programs")

    pid = sys.stdin.readline().strip()
    until("the death", lambda: any("died" in text and pid in text for text in texts("#events tr")))
    picture("death")
    # The monitor ends once this step is printed, and the browser complains of that.
    page.listen()
    mistakes = page.mistakes()
    assert not mistakes, mistakes
    say("shows the death")

    sys.stdin.readline()
    until("silence", lambda: "does not answer" in texts("#state")[0])
    say("says that nobody answers")

    page.listen_only_to(url)
    say("asked nobody else, and had nothing to complain of")
finally:
    driver.quit()
