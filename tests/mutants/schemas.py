"""Defects of what schemas, regexes and tools of callers become."""

from tests.mutants.mutant import Mutant

_SCHEMA_TESTS = "tests/deployments/text/test_schema_source.py::"
_REGEX_TESTS = "tests/deployments/text/test_regex_source.py::"
_READING_TESTS = "tests/deployments/text/answers/test_reading.py::"
_ALLOWED = _SCHEMA_TESTS + "test_a_schema_allows_what_it_says"

MUTANTS = (
    Mutant(
        name="schema-integers-are-rounded",
        path="deployments/text/schema_numbers.py",
        old="if abs(value) > MAX_EXACT_INTEGER:",
        new="if abs(value) > 10 * MAX_EXACT_INTEGER:",
        breaks="an enum of 1e16 + 1 forces 1e16",
        killed_by=_SCHEMA_TESTS + "test_other_schemas_are_refused_with_the_place",
    ),
    Mutant(
        name="schema-names-repeat-by-escapes",
        path="deployments/text/schema_source.py",
        old="'nrbtf\\\\\"'",
        new="'nrbtfu\\\\\"'",
        breaks="a free name written with an escape repeats a property with any value",
        killed_by=_ALLOWED,
    ),
    Mutant(
        name="patterns-of-names-are-narrowed",
        path="deployments/text/schema_strings.py",
        old="exact_match if is_name else search_match",
        new="search_match",
        breaks="a name that only Python takes for a match escapes patternProperties",
        killed_by=_ALLOWED,
    ),
    Mutant(
        name="regex-digits-of-every-script",
        path="deployments/text/regex_source.py",
        old='_ASCII = _classes("0-9", ',
        new='_ASCII = _classes(r"\\p{Nd}", ',
        breaks="\\d yields digits that int() of no other language reads",
        killed_by=_REGEX_TESTS + "test_digits_spaces_and_words_are_ascii",
    ),
    Mutant(
        name="tool-arguments-rewritten",
        path="deployments/text/answers/calls.py",
        old="        check_object(arguments),\n",
        new="        json.dumps(json.loads(check_object(arguments))),\n",
        breaks="1e999 becomes Infinity, which is no JSON",
        killed_by=_READING_TESTS + "test_arguments_of_json_stay_as_the_model_wrote_them",
    ),
)
