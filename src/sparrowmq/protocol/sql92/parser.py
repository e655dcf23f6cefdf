"""From the text of an expression to its condition, by lark's LALR parser."""

from collections.abc import Iterator
from functools import cache

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from sparrowmq.protocol.sql92.builder import Builder, RuleViolation, as_condition
from sparrowmq.protocol.sql92.errors import Sql92Error
from sparrowmq.protocol.sql92.grammar import GRAMMAR, WORDS
from sparrowmq.protocol.sql92.operands import Condition

MAX_SIGNS = 64
"""Minus signs in a row. Each may begin a comment, for which the lexer searches for a line end, so a
long run of them would take quadratic time."""

_END = Token("$END", "")


def parse(expression: str) -> tuple[Condition, int | None]:
    """The condition, and where RocketMQ would stop reading although more follows.

    Raises Sql92Error.
    """
    parsing = _lark().parse_interactive(expression)
    tokens: Iterator[Token] = parsing.lexer_thread.lex(parsing.parser_state)  # type: ignore[no-untyped-call]  # lark's
    signs = 0
    try:
        for token in tokens:
            signs = signs + 1 if token.type == "MINUS" else 0
            if signs > MAX_SIGNS:
                raise RuleViolation(
                    token.start_pos or 0, f"more than {MAX_SIGNS} minus signs in a row"
                )
            try:
                parsing.feed_token(token)
            except UnexpectedToken as unexpected:
                condition = _complete(parsing, unexpected, expression)
                return condition, token.start_pos
        return as_condition(parsing.feed_token(_END)), None
    except RuleViolation as refused:
        raise Sql92Error(expression, refused.position, refused.reason) from None
    except UnexpectedCharacters:
        lexer = parsing.lexer_thread.state
        assert lexer is not None, "it was given a text"
        position = lexer.line_ctr.char_pos
        raise Sql92Error(expression, position, _unreadable(expression, position)) from None
    except UnexpectedToken as unexpected:
        reason = f"{_expected(unexpected)}, found the end"
        raise Sql92Error(expression, len(expression), reason) from None


def _complete(
    parsing: InteractiveParser, unexpected: UnexpectedToken, expression: str
) -> Condition:
    """What was read before the unexpected word, if it is complete without it."""
    try:
        return as_condition(parsing.feed_token(_END))
    except UnexpectedToken:
        reason = f"{_expected(unexpected)}, found {str(unexpected.token)[:40]!r}"
        position = unexpected.token.start_pos
        raise Sql92Error(expression, position, reason) from None


def _unreadable(expression: str, position: int) -> str:
    rest = expression[position : position + 2]
    if rest.startswith("'"):
        return "a text without its closing '"
    if rest == "/*":
        return "a comment without its closing */"
    return f"unexpected character {rest[:1]!r}"


def _expected(unexpected: UnexpectedToken) -> str:
    names = set(unexpected.expected) - {"$END"}
    if "NAME" in names:
        return "expected a property, a value, NOT or ("
    return "expected " + ", ".join(sorted({WORDS.get(name, name) for name in names}))


@cache
def _lark() -> Lark:
    """The parser, built for the first expression: processes without SQL92 save about 30 ms.

    The basic lexer reads words independently of context, as RocketMQ's does, and only on demand.
    """
    return Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=Builder())
