"""Every diagnosis is provoked on a live cluster, in virtual time, and found by the doctor."""

import re

import pytest

from sparrowmq.admin.doctor.catalogue import CATALOGUE
from tests.admin.doctor import wrong_clusters, wrong_groups, wrong_messages
from tests.admin.doctor.provocations import Provocations, of

ALL = Provocations(
    {**wrong_clusters.SCENES.scenes, **wrong_groups.SCENES.scenes, **wrong_messages.SCENES.scenes}
)
WITHOUT_FIGURES = {"no-route", "filtered-for-group", "unequal-subscriptions"}


@pytest.mark.parametrize("name", ALL.scenes)
def test_the_doctor_finds_each_provoked_problem(name: str) -> None:
    finding = of(ALL.play(name), name)
    assert re.search(r"\d", finding.evidence) or name in WITHOUT_FIGURES, finding
    assert finding.severity is CATALOGUE[name].severity
    assert finding.command.startswith(("sparrowmq ", "mqadmin "))
    for text in (finding.subject, finding.what, finding.cause, finding.remedy):
        assert text and text == text.strip()


def test_every_diagnosis_is_provoked_on_a_live_cluster() -> None:
    assert set(ALL.scenes) == set(CATALOGUE)


def test_the_doctor_does_not_advise_a_paused_group_to_skip_a_message() -> None:
    examined = wrong_groups.OTHER_SCENES.play("paused in one topic")
    assert [each.id for each in examined.findings] == ["paused"]
    (paused,) = examined.findings
    assert paused.evidence == "1 of 1 broker does not let it read topic orders: broker-a"
    assert paused.command == "sparrowmq group resume billing --topic orders"
