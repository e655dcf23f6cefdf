"""Who changed what, and when."""

from sparrowmq.console.listing import part_of
from sparrowmq.console.view import Answer, Page, PageRoute, View


async def show(view: View) -> Answer:
    """The last changes, the newest first."""
    audit = view.console.desk.audit
    lines = audit.newest_first
    part = part_of(
        lines,
        {"sort": "-time", **view.query},
        key=lambda each: f"{each.user} {each.action} {each.target}",
        orders={"time": lambda each: each.time_ms},
    )
    return Page(
        template="audit.html",
        title="Audit",
        area="audit",
        values={
            "part": part,
            "unreadable": audit.unreadable,
            "fault": audit.fault,
            "is_kept": view.console.config.state_dir is not None,
        },
    )


ROUTES = (PageRoute("/audit", show),)
