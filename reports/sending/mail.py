"""A lemon night as a mail: HTML with its drawings inside, and the same in plain text. It loads nothing from elsewhere."""

from __future__ import annotations

import base64
import email.message
import email.policy
import email.utils
from collections.abc import Iterable
from dataclasses import dataclass

from probing_cluster.core import records, settings
from probing_cluster.lemon import nightly
from probing_cluster.reports import page
from probing_cluster.reports.charts import lemon_charts
from probing_cluster.reports.lemon import lemon_text, lemon_view
from probing_cluster.reports.sending import headers


@dataclass(frozen=True, kw_only=True)
class _MailImage:
    """A drawing: the addresses of its light and dark version."""

    alt: str
    light: str
    dark: str


def compose(
    night: nightly.Night, config: settings.MailSettings, *, drains: Iterable[records.Drain] = ()
) -> email.message.EmailMessage:
    """The night's mail. Its Message-ID follows from cluster and day, so a second copy is recognised."""
    view = lemon_view.of(night, drains=drains, report_url=config.report_url)
    charts = () if view.uneventful else lemon_charts.of(night)
    made = email.message.EmailMessage(policy=email.policy.SMTP.clone(cte_type="7bit"))
    made["Subject"] = headers.subject(f"[{night.cluster}] {view.subject}", 200)
    made["From"] = config.sender
    made["To"] = ", ".join(config.recipients)
    made["Date"] = email.utils.format_datetime(
        max(s.made_at for s in night.scores) if night.scores else night.day
    )
    made["Message-ID"] = message_id(night, config.sender)
    # Automatic replies are not sent to such mail (RFC 3834).
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(lemon_text.render(view))
    ids = {f"{c.name}-{shade}": f"{c.name}-{shade}@probing" for c in charts for shade in ("light", "dark")}
    drawn = [_MailImage(alt=c.alt, light=f"cid:{ids[f'{c.name}-light']}", dark=f"cid:{ids[f'{c.name}-dark']}") for c in charts]  # fmt: skip
    made.add_alternative(_html(view, drawn), subtype="html")
    *_, html = made.iter_parts()
    for chart in charts:
        for shade, png in (("light", chart.light), ("dark", chart.dark)):
            name = f"{chart.name}-{shade}"
            html.add_related(
                png, "image", "png", cid=f"<{ids[name]}>", filename=f"{name}.png", disposition="inline"
            )
    return made


def page_of(
    night: nightly.Night, config: settings.MailSettings, *, drains: Iterable[records.Drain] = ()
) -> str:
    """The same as one self-contained page, the drawings in it."""
    view = lemon_view.of(night, drains=drains, report_url=config.report_url)
    charts = () if view.uneventful else lemon_charts.of(night)
    return _html(view, [_MailImage(alt=c.alt, light=_data(c.light), dark=_data(c.dark)) for c in charts])


def message_id(night: nightly.Night, sender: str) -> str:
    """`<lemon.c.2026-11-20@host>`."""
    host = email.utils.parseaddr(sender)[1].rpartition("@")[2] or "localhost"
    cluster = "".join(ch if ch.isascii() and ch.isalnum() else "-" for ch in night.cluster)
    return f"<lemon.{cluster}.{night.day:%Y-%m-%d}@{host}>"


def _html(view: lemon_view.LemonPage, charts: Iterable[_MailImage]) -> str:
    return page.environment().get_template("lemon.html.j2").render(view=view, charts=list(charts))


def _data(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
