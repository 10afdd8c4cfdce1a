"""`probing-report JOBID`: why a job died, what it cost, and what to do now."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from probing_cluster.core import clock, command_line, digits, errors, settings
from probing_cluster.core.ending import run_command
from probing_cluster.reports import job_ref, json_out, model, rows, source, text
from probing_cluster.reports.charts import paint

_EPILOG = """exit codes: 0 printed, 2 wrong usage or configuration, 3 no such job, or it never started,
4 database and service unreachable, 5 not your job"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="probing-report",
        description="Why a job died, what it cost, and what to do now.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "job",
        metavar="JOBID",
        help="123, 123_4 (array task) or 123+1 (het component); 123@2026-11-12: the job that had the id then",
    )
    made.add_argument("--json", action="store_true", help="print JSON with stable keys instead of text")
    made.add_argument(
        "--html", metavar="FILE", help="also write a self-contained page ('-': to standard output, alone)"
    )
    made.add_argument(
        "--web", action="store_true", help="print a link that logs you in to the job's page on the web"
    )
    made.add_argument("--attempt", metavar="N", type=int, help="explain this attempt only")
    made.add_argument("--cluster", metavar="NAME", help="the job of this cluster, where several have one")
    made.add_argument(
        "--config", metavar="FILE", type=Path, help="settings file (default $PROBING_CONFIG, else /etc)"
    )
    made.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colour the text")
    command_line.add_version(made)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; its exit code."""
    return run_command.run("probing-report", lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    _print(parser().parse_args(argv))
    return 0


def _print(args: argparse.Namespace) -> None:
    ref = job_ref.parse(args.job)
    config = settings.load(args.config)
    if args.web:
        from probing_cluster.reports import web_link

        print(web_link.ask(config, f"/jobs/{ref}").url)
        return
    if args.cluster:
        config = dataclasses.replace(config, cluster=dataclasses.replace(config.cluster, name=args.cluster))
    found = rows.from_json(source.rows_document(config, ref))
    if args.cluster and all(a.cluster != args.cluster for a in found.attempts):
        raise errors.NotFound(f"no job {ref} of a cluster {args.cluster} is known")
    now = clock.SYSTEM.now()
    if model.is_overview(ref, found):
        _print_overview(args, ref, found)
        return
    report = model.build(ref, found, now=now)
    if args.attempt is not None and all(v.attempt.attempt != args.attempt for v in report.attempts):
        raise errors.NotFound(f"job {ref} has no attempt {args.attempt}; it has {_numbers(report)}")
    if args.html:
        _write_html(args.html, report, config)
    if args.json:
        _write(json_out.dumps(json_out.document(report, args.attempt)))
    elif args.html != "-":
        colour = paint.wanted(args.color, sys.stdout)
        _write(text.render(report, width=_width(), colour=colour, attempt=args.attempt))


def _numbers(report: model.ReportModel) -> str:
    numbers = [str(view.attempt.attempt) for view in report.attempts]
    return f"only {numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _print_overview(args: argparse.Namespace, ref: job_ref.JobRef, found: rows.ReportRows) -> None:
    if args.html or args.attempt is not None:
        raise errors.UsageError(f"{ref} is an array; name one task, such as {found.siblings[0].ref}")
    now = clock.SYSTEM.now()
    if args.json:
        _write(json_out.dumps(json_out.overview(str(ref), found, now)))
        return
    colour = paint.wanted(args.color, sys.stdout)
    _write(text.render_overview(str(ref), found, now=now, width=_width(), colour=colour))


def _write_html(target: str, report: model.ReportModel, config: settings.Settings) -> None:
    from probing_cluster.reports import page
    from probing_cluster.reports.charts import kept_figures

    markup = page.render(report, kept_figures.of_job(config, report.cluster, report.job_id))
    if target == "-":
        _write(markup)
        return
    command_line.write_file(Path(target), markup)
    print(f"probing-report: wrote {target}", file=sys.stderr)


def _width() -> int:
    """The width from COLUMNS, else the terminal's within readable limits, else 80."""
    wanted = os.environ.get("COLUMNS", "")
    if digits.is_number(wanted) and int(wanted):
        return min(max(int(wanted), 72), 250)
    return min(max(shutil.get_terminal_size((80, 24)).columns, 72), 110) if sys.stdout.isatty() else 80


def _write(output: str) -> None:
    sys.stdout.write(output)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
