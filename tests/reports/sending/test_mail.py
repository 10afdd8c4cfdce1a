from __future__ import annotations

import base64
import email
import email.message
import email.policy
import io
import re
import shutil
import subprocess
from pathlib import Path

import lemon_nights as nights
import mail_server
import matplotlib.image
import pytest

from probing_cluster.core import settings
from probing_cluster.lemon import nightly
from probing_cluster.reports.sending import mail, smtp

CONFIG = settings.MailSettings(sender="probing@example.org", recipients=("a@example.org", "b@example.org"))


def parsed(night: nightly.Night) -> email.message.EmailMessage:
    """The mail as its reader's program gets it."""
    found = email.message_from_bytes(bytes(mail.compose(night, CONFIG)), policy=email.policy.default)
    assert isinstance(found, email.message.EmailMessage)
    return found


def html_of(message: email.message.EmailMessage) -> str:
    part = message.get_body(("html",))
    assert part is not None
    return str(part.get_content())


def images(message: email.message.EmailMessage) -> dict[str, bytes]:
    return {
        str(p["Content-ID"]).strip("<>"): p.get_content()
        for p in message.walk()
        if p.get_content_type() == "image/png"
    }


def test_text_html_and_drawings_in_one_mail() -> None:
    """multipart/alternative of plain text and HTML with its images inside; each cid is used and is there."""
    message = parsed(nights.busy())
    assert message["Subject"] == "[c] 1 new lemon: n7; 1 still: n8; 1 gone: n9"
    assert (message["To"], message["Auto-Submitted"]) == ("a@example.org, b@example.org", "auto-generated")
    assert message.get_content_type() == "multipart/alternative"
    plain = message.get_body(("plain",))
    assert plain is not None
    assert "probing-ctl drain n7 --reason 'lemon, 6 failures'" in plain.get_content()
    used = set(re.findall(r"cid:([^\"]+)", html_of(message)))
    assert used == set(images(message))
    assert len(used) == 4


def test_nothing_is_loaded_from_anywhere() -> None:
    """No address, script or font: opening the mail tells nobody."""
    html = html_of(parsed(nights.busy()))
    assert not re.search(r"https?://|<script|<link|@import|url\(", html)


def test_a_quiet_night_is_short_in_both() -> None:
    """No images, no list, the one sentence."""
    message = parsed(nights.night())
    assert images(message) == {}
    plain = message.get_body(("plain",))
    assert plain is not None
    lines = plain.get_content().strip().splitlines()
    assert lines[0] == "c, 2026-11-20: quiet night, no lemon (2 nodes scored)"
    assert len(lines) <= 8
    assert "<ul>" not in html_of(message)


def test_the_second_copy_of_a_night_is_known_as_one() -> None:
    """The same Message-ID and bytes' worth of content; another day's is another."""
    first, second = mail.compose(nights.busy(), CONFIG), mail.compose(nights.busy(), CONFIG)
    assert first["Message-ID"] == second["Message-ID"] == "<lemon.c.2026-11-20@example.org>"
    assert first["Date"] == second["Date"]


def test_what_a_node_brings_is_escaped() -> None:
    """A note or summary with markup stays text, a line break never makes a header."""
    evil = nights.score("n7", "new", reasons=("<img src=x onerror=alert(1)>",))
    html = html_of(parsed(nights.night(evil)))
    assert "<img src=x" not in html
    assert "&lt;img src=x" in html
    broken = parsed(nights.night(evil, cluster="c\r\nBcc: eve@example.org"))
    assert broken["Bcc"] is None


def test_every_line_is_seven_bit_and_short() -> None:
    """Any relay passes it on unchanged (RFC 5322: at most 998 characters a line)."""
    raw = bytes(mail.compose(nights.busy(), CONFIG))
    assert raw.isascii()
    assert max(map(len, raw.split(b"\r\n"))) <= 998


def test_it_arrives_as_it_was_made() -> None:
    """Through a real server and back: the same text, the same HTML, the same pictures."""
    box = mail_server.Box()
    made = mail.compose(nights.busy(), CONFIG)
    with mail_server.running(box) as port:
        config = settings.MailSettings(host="localhost", port=port, security="none", sender=CONFIG.sender)
        assert smtp.send(config, bytes(made), CONFIG.recipients).sent == CONFIG.recipients
    assert html_of(box.message()) == html_of(parsed(nights.busy()))
    assert images(box.message()) == images(parsed(nights.busy()))


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("scheme", "dark"), [pytest.param(1, False, marks=pytest.mark.soak), (0, True)])
def test_a_phone_shows_it_light_and_dark(tmp_path: Path, scheme: int, dark: bool) -> None:
    """In a real browser at a phone's width: the ground is light or dark as asked, and nothing runs out of the page."""
    message = parsed(nights.busy())
    html = html_of(message)
    for cid, png in images(message).items():
        html = html.replace(f"cid:{cid}", f"data:image/png;base64,{base64.b64encode(png).decode()}")
    page = tmp_path / "mail.html"
    page.write_text(html)
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={tmp_path}/profile",
             f"--blink-settings=preferredColorScheme={scheme}", "--window-size=390,1800"]  # fmt: skip
    assert CHROMIUM is not None
    shot = tmp_path / "shot.png"
    subprocess.run(
        [CHROMIUM, *flags, f"--screenshot={shot}", page.as_uri()],
        check=True,
        capture_output=True,
        timeout=120,
    )
    image = matplotlib.image.imread(io.BytesIO(shot.read_bytes()))[..., :3]
    assert bool(image.mean() < 0.35) is dark
    assert bool(image.mean() > 0.75) is not dark
    # The outermost columns are bare ground all the way down: nothing overflows.
    assert float(image[:, -3:].std()) < 0.02
    assert float(image.std()) > 0.05
