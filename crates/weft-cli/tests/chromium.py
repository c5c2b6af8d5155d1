"""A page in a headless Chromium, for the tests of pages."""

import json

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait


class Chromium:
    """A browser that writes its screenshots to a folder, and records what its page requests."""

    def __init__(self, folder, width, height):
        options = webdriver.ChromeOptions()
        for argument in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                         "--disable-background-networking", f"--window-size={width},{height}"]:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options)
        self.folder = folder
        self.requests = []

    def until(self, what, seen):
        WebDriverWait(self.driver, 40, poll_frequency=0.05).until(lambda _: seen(), f"not seen in time: {what}")

    def texts(self, selector):
        """Returns the texts of all elements, read at once: the page may be redrawn in between."""
        return self.driver.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map((it) => it.textContent)", selector)

    def picture(self, name):
        """Writes a screenshot in each colour scheme."""
        for scheme in ["light", "dark"]:
            feature = {"name": "prefers-color-scheme", "value": scheme}
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            self.driver.save_screenshot(f"{self.folder}/{name}-{scheme}.png")
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    def mistakes(self):
        """Returns what the page wrote to the console since the last call, if it is a warning or worse."""
        return [entry for entry in self.driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]

    def listen(self):
        """Adds the addresses of the latest requests to `requests`."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])

    def listen_only_to(self, url):
        """Checks that the page made requests, and all of them to this address."""
        self.listen()
        elsewhere = [asked for asked in self.requests if not asked.startswith(url.rstrip("/"))]
        assert self.requests and not elsewhere, elsewhere


def say(what):
    print(what, flush=True)
