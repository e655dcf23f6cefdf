"""The grammar of RocketMQ's SQL92 filter for lark, its words and its precedence.

Rules bind tighter from top to bottom; note that NOT binds tighter than a comparison ("NOT a = 1" is
"(NOT a) = 1"), as in RocketMQ. The grammar has no end of input: RocketMQ stops reading at the first
word that cannot continue a complete expression (parser.py does the same).

Keywords are ASCII in any case. Numbers: decimal without leading zeros, with an optional L; a point
or an exponent makes a Double. A comment from -- must end with a line end.
"""

GRAMMAR = r"""
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

WORDS = {
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
