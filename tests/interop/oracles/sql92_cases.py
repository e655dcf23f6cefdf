"""Random SQL92 expressions and properties: mostly well formed, with every edge we know of."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

NAMES = ("a", "b", "c", "_x", "$y", "Tag1")
VALUES = (
    *("", " ", "0", "1", "2", "3", "5", "10", "-1", "+1", "-0", "007", "1.0", "1.5", "-2.5"),
    *("3.", ".5", "1e3", "1E-3", "1e400", "-1e400", "1e-400", "5f", "5d", "5L", "0x10", "0x1p3"),
    *("0x1.8p1", "0X.8P-2d", "0x1p99999", "-0x1p99999", "NaN", "-NaN", "+Infinity", "Infinity"),
    *("-Infinity", "nan", "inf", "infinity", "-0.0", "0.0", " 1", "1 ", "\t1\n", "\x001", "1_0"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "4294967296"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("-9223372036854775809", "99999999999999999999", "00000000000000000000000001"),
    *(
        "9007199254740993",
        "9007199254740992",
        "9007199254740992.5",
        "0.1",
        "1.7976931348623157e308",
    ),
    *("true", "TRUE", "True", "false", "null", "NULL", "abc", "ABC", "ab", "b", "it's", "x y"),
    *("\u0661\u0662", "\uff11", "\U0001d7cf", "1\u00a0", "\u20031", "café", "日本", "😀", "½"),
    *("--", "/*", "'", "''", "%", "a", "1,5", "1e", "e1", ".", "+", "-", "+-1", "1.5.2", "0b1"),
)
NUMBERS = (
    *("0", "1", "2", "3", "5", "10", "1l", "2L", "0L", "00", "01", "0x10", "1_000", "2147483647"),
    *("2147483648", "2147483648L", "9223372036854775807", "9223372036854775808", "4294967296"),
    *("99999999999999999999999", "1.0", "1.5", "0.5", ".5", "3.", "3.L", "1e3", "1E3", "1e+3"),
    *("1.5e-3", "1e", "1e+", "0.0", "0e0", "1e400", "1e-400", "1.7976931348623157e308", "2.5f"),
    *("4.9e-324", "2e-324", "9007199254740993", "9007199254740992.0", "0.1", "01.5", "012e1", "08"),
)
TEXTS = (
    *("''", "'a'", "'abc'", "'ABC'", "'b'", "'1'", "'1.0'", "'true'", "'TRUE'", "'it''s'", "''''"),
    *("'x y'", "'-- no'", "'/* no */'", "'日本'", "'😀'", "'a\nb'", "'null'", "'5'", "'\\'", "'%'"),
)
BLANKS = (" ", " ", " ", " ", "  ", "\t", "\n", "\r\n", "\f", " -- note\n", "/* note */", "/***/")
NOISE = (
    *("(", ")", ",", "=", "<>", "!=", "==", ">", ">=", "<", "<=", "+", "-", "--", "*", "/", "%"),
    *(
        "'",
        '"',
        "/*",
        "*/",
        ";",
        "!",
        "&&",
        "||",
        ".",
        "\u00a0",
        "é",
        "\u017f",
        "\u212a",
        "İ",
        "\x00",
    ),
    *("AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN", "CONTAINS", "LIKE", "ESCAPE", "\\", "#"),
)


class Sql92Cases:
    """Expressions in RocketMQ's grammar, some of them damaged."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def requests(self, pairs: int) -> Iterator[dict[str, Any]]:
        """Requests with `pairs` expression and property pairs in all."""
        each = 5
        for _ in range(0, pairs, each):
            properties = [self.properties() for _ in range(each)]
            yield {"expression": self.expression(), "properties": properties}

    def properties(self) -> dict[str, str]:
        names = [name for name in NAMES if self.rng.random() < 0.75]
        if self.rng.random() < 0.5:  # numbers and nothing else, so that many comparisons succeed
            return {name: str(self.rng.randint(-3, 6)) for name in names}
        return {name: self.rng.choice(VALUES) for name in names}

    def expression(self) -> str:
        if self.rng.random() < 0.04:
            soup = NOISE + NAMES + NUMBERS + TEXTS
            return "".join(self._spaced(self.rng.choices(soup, k=self.rng.randint(0, 6))))
        words = self.any_of(self.rng.choice((0, 0, 1, 1, 2)))
        damage = self.rng.random()
        if damage < 0.12:
            self._damage_words(words)
        text = "".join(self._spaced(words))
        return self._damage_text(text) if 0.12 <= damage < 0.2 else text

    def any_of(self, depth: int) -> list[str]:
        return self._chain("OR", self.all_of, depth)

    def all_of(self, depth: int) -> list[str]:
        return self._chain("AND", self.condition, depth)

    def _chain(self, word: str, part: Callable[[int], list[str]], depth: int) -> list[str]:
        words = part(depth)
        while self.rng.random() < 0.25:
            words += [self._cased(word), *part(depth)]
        return words

    def condition(self, depth: int) -> list[str]:
        pick = self.rng.random()
        if pick < 0.08:
            return self.anything(depth)
        if pick < 0.16:
            return [self._cased("NOT"), "(", *self.any_of(max(0, depth - 1)), ")"]
        if pick < 0.5:
            return self.equality(depth)
        return self.comparison(depth)

    def equality(self, depth: int) -> list[str]:
        words = self.anything(depth) if self.rng.random() < 0.3 else self.property()
        while True:
            if self.rng.random() < 0.3:
                words += self._keywords(self.rng.choice(("IS NULL", "IS NOT NULL")))
            else:
                words += [self.rng.choice(("=", "<>")), *self.value(depth)]
            if self.rng.random() < 0.93:
                return words

    def comparison(self, depth: int) -> list[str]:
        words = self.anything(depth) if self.rng.random() < 0.12 else self.property()
        while True:
            words += self._tail(depth)
            if self.rng.random() < 0.97:
                return words

    def _tail(self, depth: int) -> list[str]:
        pick = self.rng.random()
        if pick < 0.5:
            return [self.rng.choice((">", ">=", "<", "<=")), *self.limit(depth)]
        if pick < 0.65:
            between = self._keywords(self.rng.choice(("BETWEEN", "NOT BETWEEN")))
            return [*between, *self.limit(depth), self._cased("AND"), *self.limit(depth)]
        if pick < 0.8:
            texts = [self.rng.choice(TEXTS) for _ in range(self.rng.choice((1, 2, 3, 6)))]
            listed = ",".join(texts)
            return [*self._keywords(self.rng.choice(("IN", "NOT IN"))), "(", listed, ")"]
        word = self.rng.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
        sign = self.rng.choice(("", "NOT "))
        return [*self._keywords(sign + word), self.rng.choice(TEXTS)]

    def property(self) -> list[str]:
        return [self.rng.choice(NAMES)]

    def limit(self, depth: int) -> list[str]:
        """An operand of an order comparison: a number, its negative, another property."""
        pick = self.rng.random()
        sign = ["-"] if self.rng.random() < 0.15 else []
        if pick < 0.45:
            return [*sign, str(self.rng.randint(0, 6))]
        if pick < 0.75:
            return [*sign, self.rng.choice(NUMBERS)]
        return self.property() if pick < 0.96 else self.anything(depth)

    def value(self, depth: int) -> list[str]:
        pick = self.rng.random()
        if pick < 0.45:
            return self.limit(depth)
        if pick < 0.75:
            return [self.rng.choice(TEXTS)]
        return [self._cased("TRUE")] if pick < 0.85 else self.anything(depth)

    def anything(self, depth: int) -> list[str]:
        pick = self.rng.random()
        if pick < 0.1:
            return ["-", *self.anything(depth)]
        if pick < 0.15:
            return ["+", *self.anything(depth)]
        if pick < 0.25:
            return [self._cased("NOT"), *self.anything(depth)]
        if depth > 0 and pick < 0.55:
            return ["(", *self.any_of(depth - 1), ")"]
        return [
            self.rng.choice((*NAMES, *NAMES, *NUMBERS[:20], *TEXTS[:10], "TRUE", "FALSE", "NULL"))
        ]

    def _keywords(self, words: str) -> list[str]:
        return [self._cased(word) for word in words.split()]

    def _cased(self, word: str) -> str:
        return self.rng.choice((word, word, word.lower(), word.title(), word.swapcase()))

    def _spaced(self, words: list[str]) -> Iterator[str]:
        for word in words:
            yield word
            if self.rng.random() < 0.97:
                yield self.rng.choice(BLANKS)

    def _damage_words(self, words: list[str]) -> None:
        for _ in range(self.rng.choice((1, 1, 2))):
            place = self.rng.randrange(len(words) + 1)
            change = self.rng.random()
            if change < 0.4:
                words.insert(place, self.rng.choice(NOISE + NAMES + NUMBERS + TEXTS))
            elif change < 0.7 and len(words) > 1:
                words.pop(min(place, len(words) - 1))
            else:
                other = self.rng.randrange(len(words))
                words.insert(place, words[other])

    def _damage_text(self, text: str) -> str:
        place = self.rng.randrange(len(text) + 1)
        change = self.rng.random()
        if change < 0.35:
            return text[:place]
        if change < 0.7:
            return text[:place] + self.rng.choice(NOISE) + text[place:]
        return text[:place] + text[place + 1 :]
