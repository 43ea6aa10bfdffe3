#!/usr/bin/env python3
"""Tests of public_api.py and make_api_manual.py with a header that has one of each kind of declaration."""
import unittest

import make_api_manual
import public_api

HEADER = """\
/* Things to try. Second sentence.
 *
 *   things_use(1);
 *
 * Errors: functions return 0. */
#ifndef FARSIDE_THINGS_H
#define FARSIDE_THINGS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- First: some functions ---- */

/* A type. */
struct farside_thing {
  int a; /* first; of two */
  struct {
    int b;
  } inner;
};
typedef struct farside_other farside_other;

/* Makes a thing. -EINVAL: a - b is wrong.
 *   1  one
 *   2  two
 */
int farside_make(struct farside_thing* thing,
                 void (*each)(int, void*), size_t count);
/* Uses it; in both ways. */
static inline void farside_use(int a) {
  if (a) {
    farside_use(a - 1);
  }
}
static inline void farside_use_twice(int a) { farside_use(a); }

/* Internal: nothing for programs. */
void* farside_hidden_(void) __attribute__((weak));

/* ---- Second ---- */

#define FARSIDE_LONG(a) \\
  ((a) + 1)
#define FARSIDE_INTERNAL_ 1
extern struct farside_thing farside_thing_view;
extern __thread int farside_here __attribute__((tls_model("initial-exec")));

#ifdef __cplusplus
}
#endif
#endif
"""


def header():
    return public_api.read_header("farside/things.h", HEADER)


class PublicApiTest(unittest.TestCase):
    def test_functions_and_their_descriptions(self):
        groups = [(g.section, g.text.split("\n")[0], [f.name for f in g.functions]) for g in header().groups]
        self.assertEqual(groups, [("First: some functions", "Makes a thing. -EINVAL: a - b is wrong.", ["farside_make"]),
                                  ("First: some functions", "Uses it; in both ways.", ["farside_use", "farside_use_twice"]),
                                  ("First: some functions", "Internal: nothing for programs.", ["farside_hidden_"])])
        self.assertEqual([g.is_internal for g in header().groups], [False, False, True])

    def test_prototypes(self):
        prototypes = [f.prototype for g in header().groups for f in g.functions]
        self.assertEqual(prototypes[0], "int farside_make(struct farside_thing* thing, void (*each)(int, void*), size_t count);")
        self.assertEqual(prototypes[1], "static inline void farside_use(int a);")

    def test_what_the_library_exports(self):
        self.assertEqual(header().exported(), ["farside_here", "farside_hidden_", "farside_make", "farside_thing_view"])

    def test_types_and_constants(self):
        names = [public_api.NAME.search(text)[0] for text in header().definitions]
        self.assertEqual(names, ["farside_thing", "farside_other", "FARSIDE_LONG"])
        self.assertTrue(header().definitions[0].startswith("/* A type. */\nstruct"))

    def test_what_it_cannot_read_is_an_error(self):
        with self.assertRaises(ValueError):
            public_api.read_header("farside/x.h", "/* X. */\n@")


class ManualTest(unittest.TestCase):
    def setUp(self):
        self.pages = make_api_manual.pages_of(header(), "1.2")

    def test_each_function_has_a_page(self):
        self.assertEqual(sorted(self.pages), ["farside_make", "farside_things", "farside_use", "farside_use_twice"])
        self.assertEqual(self.pages["farside_use_twice"], ".so man3/farside_use.3\n")

    def test_a_page(self):
        text = self.pages["farside_make"]
        for part in (".SH NAME\nfarside_make \\- makes a thing\n", "#include <farside/things.h>",
                     "int farside_make(struct farside_thing* thing,", "\\-EINVAL: a \\- b is wrong.\n",
                     ".nf\n.RS 2\n  1  one\n  2  two\n.RE\n.fi\n", ".SH NOTES\n.PP\nErrors: functions return 0.",
                     ".BR farside_use (3)"):
            self.assertIn(part, text)
        self.assertNotIn("hidden", text)

    def test_functions_that_share_a_comment_share_a_page(self):
        text = self.pages["farside_use"]
        self.assertIn("farside_use, farside_use_twice \\- uses it\n", text)
        self.assertIn("\nvoid farside_use(int a);\nvoid farside_use_twice(int a);\n", text)

    def test_the_page_of_the_header(self):
        text = self.pages["farside_things"]
        for part in ("farside_things \\- things to try\n", "  things_use(1);", "struct farside_thing {", ".BR farside_make (3)"):
            self.assertIn(part, text)

    def test_a_function_without_description_is_an_error(self):
        with self.assertRaises(ValueError):
            make_api_manual.pages_of(public_api.read_header("farside/x.h", "/* X. */\n\nint farside_x(void);"), "1")


if __name__ == "__main__":
    unittest.main()
