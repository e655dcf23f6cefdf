"""The picture that peak_shaving draws: scales with round values, rates from totals, valid SVG."""

from xml.etree import ElementTree

import pytest

from tools.line_chart import Line, Panel, line_chart, rates, ticks

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("most", "steps", "expected"),
    [
        (5000, 4, [0, 2000, 4000, 6000]),
        (4000, 4, [0, 1000, 2000, 3000, 4000]),
        (1, 4, [0, 0.5, 1]),
        (10, 12, list(range(11))),
        (0.3, 3, [0, 0.1, 0.2, 0.3]),
    ],
)
def test_a_scale_has_round_values_and_ends_where_all_fits(
    most: float, steps: int, expected: list[float]
) -> None:
    assert ticks(most, steps) == pytest.approx(expected)


def test_a_rate_is_the_growth_of_a_total_by_the_time_that_it_took() -> None:
    assert rates([(0, 0), (1, 10), (3, 10), (3.5, 20)]) == [(0.5, 10), (2, 0), (3.25, 20)]


def test_many_totals_become_fewer_rates_that_are_averages() -> None:
    totals = [(at, at * 7) for at in range(101)]
    found = rates(totals, most=10)
    assert len(found) <= 10
    assert {rate for _, rate in found} == {7}


def test_a_line_is_drawn_from_the_floor_of_its_panel_to_its_largest_value() -> None:
    panel = Panel(
        "a & b", [Line("up", "red", [(0, 0), (2, 4)], top="4 wait")], height=100, mark=(2, "half <")
    )
    picture = ElementTree.fromstring(line_chart("title", "subtitle", [panel]))
    (line,) = picture.iter(f"{SVG}polyline")
    (_, first), (_, last) = (point.split(",") for point in line.attrib["points"].split())
    assert float(first) - float(last) == 100
    texts = [each.text for each in picture.iter(f"{SVG}text")]
    assert {"title", "subtitle", "a & b", "half <", "up", "4 wait"} <= set(texts)


@pytest.mark.parametrize("points", [[], [(0.0, 0.0)], [(0.0, 0.0), (1.0, 0.0)]])
def test_lines_without_points_or_height_are_drawn(points: list[tuple[float, float]]) -> None:
    chart = line_chart("", "", [Panel("", [Line("", "red", points, is_filled=True)])])
    assert "nan" not in chart
    ElementTree.fromstring(chart)
