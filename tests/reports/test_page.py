from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from datetime import timedelta

import conftest_story as example
import pytest
from page_reader import EVIL, Reader, require_self_contained

from probing_cluster.core import records, vocabulary
from probing_cluster.reports import job_ref, model, page, phrase, rows
from probing_cluster.reports.charts import drawing, kept_figures, svg

NOW = example.at("15:00:00")


def build(found: rows.ReportRows) -> model.ReportModel:
    return model.build(job_ref.parse("4242"), found, now=NOW)


def test_the_page_says_what_the_terminal_says(story: rows.ReportRows) -> None:
    """Verdict, evidence, cost and advice are all there in words, not only drawn."""
    text = " ".join(" ".join(Reader(page.render(build(story))).words).split())
    for words in (
        "COMPLETED after 1 requeue",
        "GPU 3 of n2 fell off the bus (Xid 79) 4 s before the job ended.",
        "hardware, certain",
        "2026-11-21 14:20:32Z n2 kernel Xid 79 high gpu3 0000:5e:00 GPU has fallen off the bus.",
        "Reseat or replace GPU 3 of n2",
        "2.6 GPU-hours",
        "No fault recorded on n1.",
        "ETTR 0.71, expected 0.85",
        "71.5 %",
    ):
        assert words in text


def test_the_badge_of_a_run_without_any_step_says_so(story: rows.ReportRows) -> None:
    """As the terminal does."""
    assert story.account is not None
    assumed = dataclasses.replace(story, account=dataclasses.replace(story.account, measured=False))
    for has_steps, words in (
        (False, "expected 0.85; if it trained: no step is on record"),
        (None, "expected 0.85; assumed where not seen"),
    ):
        text = page.render(build(dataclasses.replace(assumed, has_steps=has_steps)))
        assert words in " ".join(" ".join(Reader(text).words).split())


def test_a_run_whose_ettr_means_nothing_has_no_bar(story: rows.ReportRows) -> None:
    """The time of a job without GPUs and steps is not shared out; the terminal decides alike."""
    assert story.account is not None
    without_gpus = dataclasses.replace(story.account, measured=False, n_gpus=0)
    made = build(dataclasses.replace(story, account=without_gpus, has_steps=False))
    assert made.run is not None
    assert not made.shows_ettr
    assert 'class="wall"' not in page.render(made)
    assert 'class="wall"' in page.render(build(story))


def test_a_line_of_the_output_has_its_number_and_no_time(story: rows.ReportRows) -> None:
    """Only the time of its reading is stored, which lies behind the job's end: it is neither written nor drawn."""
    read_at = story.evidence[0].at + timedelta(hours=3)
    of_log = {
        "source": "joblog",
        "kind": "python_exception",
        "message": "KeyError: 'lr'",
        "detail": {"line": 12},
    }
    undated = [
        dataclasses.replace(story.evidence[0], at=read_at, observed_at=read_at, **of_log),
        dataclasses.replace(
            story.evidence[0], at=read_at, observed_at=read_at, **of_log | {"source": "dump"}
        ),
    ]
    undated.append(dataclasses.replace(undated[0], detail={"line": 12, "at_byte": 4096}))
    for event, place in zip(undated, ("line 12", "at end", "byte 4096"), strict=True):
        shown = page.render(build(dataclasses.replace(story, evidence=(event, story.evidence[1]))))
        assert f"<td>{place}</td>" in shown
        assert phrase.stamp_z(read_at) not in shown
        assert f'href="#event-{event.event_id}"' not in shown
        assert ">later<" not in shown
    dated = dataclasses.replace(undated[0], kind=vocabulary.LOG_STALL)
    assert phrase.stamp_z(read_at) in page.render(build(dataclasses.replace(story, evidence=(dated,))))


def test_the_last_lines_of_its_output_are_open(story: rows.ReportRows) -> None:
    """Whoever opens a report looks for them first; a file that was not read has none."""
    ended = story.attempts[1]
    assert ended.state == "REQUEUED"
    at = ended.start_at or ended.submit_at
    logs = (
        rows.JobLog(node="n1", at=at, stream="stdout", path="/w/a.out", tail=("KeyError: 'lr'",)),
        rows.JobLog(node="n1", at=at, stream="stderr", path="/w/a.err", tail=(), why="gone"),
    )
    tags = Reader(page.render(build(dataclasses.replace(story, logs=logs)))).tags
    assert ["open" in attrs for tag, attrs in tags if tag == "details"] == [True, False]


def test_the_page_needs_nothing_from_anywhere(story: rows.ReportRows) -> None:
    """No script, no link out, no image, font or import: it can be mailed and opened offline."""
    text = page.render(build(story))
    tags = require_self_contained(text)
    targets = [
        v for _, attrs in tags for k, v in attrs.items() if k in {"href", "src", "action", "xlink:href"}
    ]
    assert all(t and t.startswith("#event-") for t in targets)


def test_hostile_names_stay_text(story: rows.ReportRows) -> None:
    """Whatever a user calls a job, a node or a device, it is shown and never run."""
    attempts = tuple(
        dataclasses.replace(a, name=EVIL, user=EVIL, partition=EVIL, state=EVIL, nodes=(EVIL,))
        for a in story.attempts
    )
    evidence = tuple(
        dataclasses.replace(e, message=EVIL, device=EVIL, kind=EVIL, node=EVIL, source=EVIL)
        for e in story.evidence
    )
    verdicts = tuple(
        dataclasses.replace(v, summary=EVIL, next_step=EVIL, ruled_out=(EVIL,), author=EVIL)
        for v in story.verdicts
    )
    drains = tuple(dataclasses.replace(d, reason=EVIL, why_state=EVIL, node=EVIL) for d in story.drains)
    hostile = dataclasses.replace(
        story, attempts=attempts, evidence=evidence, verdicts=verdicts, drains=drains
    )
    tags = Reader(page.render(build(hostile))).tags
    assert not {tag for tag, _ in tags} & {"script", "img"}
    assert not [k for _, attrs in tags for k in attrs if k.startswith("on")]


def test_every_reference_of_the_page_has_its_target(story: rows.ReportRows) -> None:
    """Markers lead to evidence lines, regions to their headings; ids are unique."""
    tags = Reader(page.render(build(story))).tags
    ids = [attrs["id"] for _, attrs in tags if attrs.get("id")]
    assert len(ids) == len(set(ids))
    wanted = {v.removeprefix("#") for _, a in tags for k, v in a.items() if k == "href" and v}
    wanted |= {
        word for _, a in tags if a.get("aria-labelledby") for word in str(a["aria-labelledby"]).split()
    }
    assert wanted <= set(ids)
    assert any(tag == "a" for tag, _ in tags)


def test_tables_have_captions_or_headings_and_scopes(story: rows.ReportRows) -> None:
    """A screen reader can name every column; what scrolls can be reached by keyboard."""
    tags = Reader(page.render(build(story))).tags
    assert all(a.get("scope") in {"col", "row"} for tag, a in tags if tag == "th")
    assert all(
        a.get("tabindex") == "0" and a.get("aria-label") for tag, a in tags if a.get("class") == "scroll"
    )
    assert ("html", {"lang": "en"}) in tags


def test_the_drawing_is_to_scale(story: rows.ReportRows) -> None:
    """Bars are as long as their seconds, and the fault is drawn where the clock says."""
    root = ET.fromstring(drawing.timeline(build(story)))
    space = "{http://www.w3.org/2000/svg}"
    bars = [
        (r.get("class"), float(r.get("x", 0)), float(r.get("width", 0)))
        for r in root.iter(f"{space}rect")
        if r.get("class") in {"ran", "lost", "waited"} and r.get("x")
    ]
    whole = (example.at("14:41:09") - example.at("14:02:11")).total_seconds()
    px = (960 - 148 - 28) / whole
    expected = [("waited", 3), ("ran", 1102 - 450), ("lost", 450), ("waited", 64), ("ran", 1169)]
    assert [kind for kind, _, _ in bars] == [kind for kind, _ in expected]
    for (_, _, width), (_, seconds) in zip(bars, expected, strict=True):
        assert width == pytest.approx(max(seconds * px, 2.0), abs=0.02)
    diamond = next(p for p in root.iter(f"{space}polygon") if "event" in str(p.get("class")))
    x = float(str(diamond.get("points")).split(",")[0])
    assert x == pytest.approx(
        148 + px * (example.at("14:20:32") - example.at("14:02:11")).total_seconds(), abs=0.02
    )


def test_the_drawing_tells_its_content_in_words(story: rows.ReportRows) -> None:
    """Title and description carry what the bars show."""
    root = ET.fromstring(drawing.timeline(build(story)))
    words = [str(e.text) for e in root if e.tag.endswith(("title", "desc"))]
    assert words == [
        "Timeline of job 4242",
        (
            "Attempt 1: 2026-11-21 14:02:14Z to 2026-11-21 14:20:36Z, REQUEUED, the last 7 min 30 s lost (assumed). "
            "Attempt 2: 2026-11-21 14:21:40Z to 2026-11-21 14:41:09Z, COMPLETED."
        ),
    ]


def test_a_loss_after_assumed_checkpoints_is_drawn_as_assumed(story: rows.ReportRows) -> None:
    """In the words of the drawing and in the bar's tooltip, as in the text."""
    assert story.account is not None
    for measured, words in ((False, "lost (assumed)"), (True, "lost")):
        account = dataclasses.replace(story.account, measured=measured)
        drawn = drawing.timeline(build(dataclasses.replace(story, account=account)))
        assert f"the last 7 min 30 s {words}." in drawn
        assert f"ran, but {words} 7 min 30 s" in drawn


@pytest.mark.parametrize("seconds", [1, 59, 3600, 86400 * 3, 86400 * 400])
def test_the_axis_has_a_handful_of_ticks_at_any_length(seconds: int) -> None:
    """From a second to a year the axis is readable."""
    scale = drawing.Scale(example.DAY, example.DAY + (example.at("00:00:01") - example.DAY) * seconds)
    assert 1 <= len(list(scale.ticks())) <= 9


@pytest.mark.parametrize(("seconds", "form"), [(90, r"\d\d:\d\d:\d\dZ"), (3600, r"\d\d:\d\dZ")])
def test_an_axis_says_all_its_instants_alike(seconds: int, form: str) -> None:
    """Not `14:02Z` between `14:01:45Z` and `14:02:15Z`."""
    scale = drawing.Scale(example.DAY, example.DAY + (example.at("00:00:01") - example.DAY) * seconds)
    labels = re.findall(r">([^<]+)</text>", drawing._axis(scale, 0.0, days=False, late=False))
    assert len(labels) > 3
    assert all(re.fullmatch(form, label) for label in labels)


def test_svg_escapes_what_it_is_given() -> None:
    """Text and attributes cannot leave their place."""
    made = svg.element("text", text="<a&b>", class_='x" onload="y')
    assert made == """<text class='x" onload="y'>&lt;a&amp;b&gt;</text>"""
    ET.fromstring(made)


def test_a_running_job_has_a_page_too() -> None:
    """No end, no verdict, no account: the page still renders and says so."""
    running = example.attempt(1, state="RUNNING", start_at=example.at("14:03:00"), nodes=("n2",))
    xid = example.event(example.XID, example.at("14:30:00"), severity=records.Severity.LOW)
    text = " ".join(Reader(page.render(build(rows.ReportRows(attempts=(running,), others=(xid,))))).words)
    assert "still running" in text
    assert "Seen on the nodes of attempt 1 so far" in text


def test_what_came_after_the_end_does_not_stretch_the_axis(story: rows.ReportRows) -> None:
    """A drain nine minutes after a job of 40 minutes: the bars keep their lengths, its mark stands right of the axis."""
    space = "{http://www.w3.org/2000/svg}"

    def bars(found: rows.ReportRows) -> list[str]:
        root = ET.fromstring(drawing.timeline(build(found)))
        return [str(r.get("width")) for r in root.iter(f"{space}rect") if r.get("class") in {"ran", "lost"}]

    late = example.drain(
        "drain", example.at("14:50:00"), event_ids=(), job_id=4242, node=story.attempts[1].nodes[0]
    )
    after = dataclasses.replace(story, drains=(*story.drains, late))
    assert bars(after) == bars(story)
    root = ET.fromstring(drawing.timeline(build(after)))
    right = max(float(str(p.get("points")).split(",")[0]) for p in root.iter(f"{space}polygon"))
    axis = next(
        float(str(line.get("x2"))) for line in root.iter(f"{space}line") if line.get("class") == "axis"
    )
    assert right > axis
    assert "later" in {t.text for t in root.iter(f"{space}text")}
    assert "later" not in {t.text for t in ET.fromstring(drawing.timeline(build(story))).iter(f"{space}text")}


def test_what_was_kept_of_the_job_is_drawn(story: rows.ReportRows) -> None:
    """A heading and a drawing each; without any the page has no such section."""
    figure = kept_figures.KeptFigure(title="train: loss <b>", drawing="<svg>drawn</svg>")
    with_figures, without = page.render(build(story), [figure]), page.render(build(story))
    assert "<h3>train: loss &lt;b&gt;</h3>" in with_figures
    assert "<svg>drawn</svg>" in with_figures
    assert "h-kept" not in without
