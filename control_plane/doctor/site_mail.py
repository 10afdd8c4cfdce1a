"""What `probing-ctl doctor` finds about telling people: Slurm's MailProg, the field that verdicts are written to, the routes."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path

from probing_cluster.control_plane.doctor import site_rights
from probing_cluster.control_plane.notices import blind, kinds, routes
from probing_cluster.control_plane.owners import write_back
from probing_cluster.core import errors, settings
from probing_cluster.slurm_plugins import doctor

_OURS = "mail_program.py"


def mail_program(
    config: settings.Settings, slurm_config: Mapping[str, str]
) -> Iterator[doctor.DoctorFinding]:
    """Slurm's MailProg, as it lies on this host."""
    named = slurm_config.get("MailProg", "")
    path = Path(named) if named.startswith("/") else None
    ours = path is not None and path.is_file() and _OURS in path.read_text("utf-8", "replace")
    if not ours:
        yield doctor.note(
            "mail_program",
            named or "not set",
            why="owners get Slurm's mail without the verdict",
            fix="probing_mail_program: true in the inventory, or MailProg=<directory>/slurm/mailprog",
        )
        return
    assert path is not None
    why = "whoever can change it is SlurmUser"
    if bad := site_rights.changeable("mail_program", path, "MailProg in slurm.conf", why=why):
        yield bad
    elif not config.mail.host:
        why = "the service takes no mail, and the site's own program sends it without the verdict"
        yield doctor.warn("mail_program", "no [mail] host", why=why, fix="[mail] host")
    else:
        yield doctor.ok("mail_program", named)


def written_back(config: settings.Settings) -> Iterator[doctor.DoctorFinding]:
    """The field that verdicts are written to is one that accounting has."""
    field = config.service.write_back
    if field and field not in write_back.FIELDS:
        fix = f"[service] write_back = {' or '.join(write_back.FIELDS)}"
        why = "no verdict is written to accounting"
        yield doctor.fail("write_back", field, why=why, fix=fix)
    elif field:
        yield doctor.ok("write_back", field)


def notice_routes(config: settings.Settings) -> Iterator[doctor.DoctorFinding]:
    """The routes can work; whether messages arrive says `probing-ctl notices test`."""
    if not config.notices.routes:
        yield doctor.note(
            "notices",
            "no route",
            why="drains, incidents and hangs are told to nobody; people must look",
            fix="[[notices.routes]]; then probing-ctl notices test",
        )
        return
    try:
        routes.check(config, [k.name for k in (*kinds.REGISTER, blind.KIND)])
    except errors.SettingsError as exc:
        why = "no notice is sent while it is so"
        yield doctor.fail("notices", str(exc), why=why, fix="mend the route it names")
        return
    if any(r.url_file for r in config.notices.routes) and importlib.util.find_spec("apprise") is None:
        why = "only mail is sent"
        fix = "pip install 'probing-cluster[service]'"
        yield doctor.fail("notices", "apprise is not installed", why=why, fix=fix)
        return
    yield doctor.ok("notices", ", ".join(r.name for r in config.notices.routes))
