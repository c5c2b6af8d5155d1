"""The route controller's page in a headless Chromium: page.py URL FOLDER. Prints each step that it has seen, waits for a
line before each event, and writes screenshots to the folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chromium import Chromium, say  # noqa: E402

url, folder = sys.argv[1:]
page = Chromium(folder, 1500, 1500)
driver, until, texts, picture = page.driver, page.until, page.texts, page.picture

try:
    driver.get(url)
    # Two leaves, two spines, four hosts; eight cables of two directions.
    until("the fabric", lambda: sorted(texts("#fabric text")) == [
        "10.1.0.2", "10.1.1.2", "10.2.0.2", "10.2.1.2", "l0", "l1", "s0", "s1"])
    until("sixteen links", lambda: len(texts("#fabric line")) == 16)
    until("loads", lambda: len(texts("#fabric line:not(.none)")) >= 8)
    until("that it steers", lambda: "steers" in texts("#tiles dd"))
    until("that no job was announced", lambda: texts("#jobs caption") == ["none was announced"])
    say("shows the fabric")

    sys.stdin.readline()
    until("a full link", lambda: len(texts("#fabric line.l4")) >= 1)
    until("an alarm", lambda: len(texts("#fabric line.alarm")) >= 1 and any("marks" in it for it in texts("#events td.words")))
    picture("alarm")
    until("a move and its reason", lambda: any("% full" in it for it in texts("#moves td.words")))
    until("its command", lambda: any("ip route replace 10.2." in it for it in texts("#moves code")))
    until("that it helped", lambda: any("kept" == it for it in texts("#events .kind")))
    until("no alarm", lambda: not texts("#fabric line.alarm"))
    picture("moved")
    # The controller ends once this step is printed, and the browser complains of that.
    page.listen()
    mistakes = page.mistakes()
    assert not mistakes, mistakes
    say("shows the move")

    sys.stdin.readline()
    until("silence", lambda: "does not answer" in texts("#state")[0])
    say("says that nobody answers")

    page.listen_only_to(url)
    say("asked nobody else, and had nothing to complain of")
finally:
    driver.quit()
