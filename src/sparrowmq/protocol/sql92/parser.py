"""From the text of an expression to its condition: RocketMQ's grammar, for lark's LALR parser.

Rules bind tighter from top to bottom; note that NOT binds tighter than a comparison ("NOT a = 1" is
"(NOT a) = 1"), as in RocketMQ. The grammar has no end of input: RocketMQ stops reading at the first
word that cannot continue a complete expression, and so does `parse`.

Keywords are ASCII in any case. Numbers: decimal without leading zeros, with an optional L; a point
or an exponent makes a Double. A comment from -- must end with a line end.
"""

from collections.abc import Iterator
from functools import cache

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from sparrowmq.protocol.sql92.builder import Builder, RuleViolation, as_condition
from sparrowmq.protocol.sql92.errors import Sql92Error
from sparrowmq.protocol.sql92.operands import Condition

_GRAMMAR = r"""
?start: any_of

?any_of: all_of
    | all_of (_OR all_of)+                       -> disjunction

?all_of: equality
    | equality (_AND equality)+                  -> conjunction

?equality: comparison
    | equality _EQUAL comparison                 -> equal
    | equality _NOT_EQUAL comparison             -> not_equal
    | equality _IS NULL                          -> is_null
    | equality _IS NOT NULL                      -> is_not_null

?comparison: signed
    | comparison ORDER signed                    -> ordered
    | comparison TEXT_TEST STRING                -> text_test
    | comparison NOT TEXT_TEST STRING            -> not_text_test
    | comparison _BETWEEN signed _AND signed     -> between
    | comparison NOT _BETWEEN signed _AND signed -> not_between
    | comparison _IN "(" texts ")"               -> is_in
    | comparison NOT _IN "(" texts ")"           -> not_in

texts: STRING ("," STRING)*

?signed: "+" signed
    | MINUS signed                               -> negative
    | NOT signed                                 -> negation
    | primary

?primary: STRING                                 -> string
    | DECIMAL                                    -> decimal
    | FLOAT                                      -> floating
    | TRUE                                       -> true
    | FALSE                                      -> false
    | NULL                                       -> null
    | NAME                                       -> property
    | "(" any_of ")"

_EQUAL: "="
_NOT_EQUAL.2: "<>"
ORDER: ">=" | "<=" | ">" | "<"
MINUS: "-"
STRING: /'(?:''|[^'])*'/
FLOAT.2: /(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE][+-]?[0-9]))(?:[eE][+-]?[0-9]+)?/
DECIMAL: /0|[1-9][0-9]*[lL]?/
NAME: /[a-zA-Z_$][a-zA-Z0-9_$]*/

_AND.2: /(?ai:AND)(?![a-zA-Z0-9_$])/
_OR.2: /(?ai:OR)(?![a-zA-Z0-9_$])/
NOT.2: /(?ai:NOT)(?![a-zA-Z0-9_$])/
_IS.2: /(?ai:IS)(?![a-zA-Z0-9_$])/
_IN.2: /(?ai:IN)(?![a-zA-Z0-9_$])/
_BETWEEN.2: /(?ai:BETWEEN)(?![a-zA-Z0-9_$])/
TEXT_TEST.2: /(?ai:CONTAINS|STARTSWITH|ENDSWITH)(?![a-zA-Z0-9_$])/
TRUE.2: /(?ai:TRUE)(?![a-zA-Z0-9_$])/
FALSE.2: /(?ai:FALSE)(?![a-zA-Z0-9_$])/
NULL.2: /(?ai:NULL)(?![a-zA-Z0-9_$])/

BLANKS: /[ \t\n\r\f]+/
LINE_COMMENT.3: /--[^\n\r]*+(?:\r\n|\n|\r)/
BLOCK_COMMENT.3: /\/\*[^*]*\*(?:\*|[^*\/][^*]*\*)*\//
%ignore BLANKS
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""

_WORDS = {
    "_AND": "AND",
    "_OR": "OR",
    "_IS": "IS",
    "_IN": "IN",
    "_BETWEEN": "BETWEEN",
    "_EQUAL": "=",
    "_NOT_EQUAL": "<>",
    "ORDER": "a comparison",
    "TEXT_TEST": "CONTAINS, STARTSWITH or ENDSWITH",
    "MINUS": "-",
    "PLUS": "+",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "STRING": "a 'text'",
    "FLOAT": "a number",
    "DECIMAL": "a number",
    "NAME": "a property",
}
"""Names of the grammar's terminals in error texts; other keywords are shown as they are."""

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
    return "expected " + ", ".join(sorted({_WORDS.get(name, name) for name in names}))


@cache
def _lark() -> Lark:
    """The parser, built for the first expression: processes without SQL92 save about 30 ms.

    The basic lexer reads words independently of context, as RocketMQ's does, and only on demand.
    """
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=Builder())
