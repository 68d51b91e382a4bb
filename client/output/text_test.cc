#include "client/output/text.h"

#include <catch2/catch.hpp>

namespace agentmon {

TEST_CASE("control bytes, escape sequences and broken UTF-8 are shown, not sent") {
  CHECK(Printable("a\nb\tc\r") == "a\\nb\\tc\\r");
  CHECK(Printable("\x1b[31mred") == "\\x1b[31mred");
  CHECK(Printable("\xc2\x9b"
                  "31m") == "\\u009b31m");                        // C1 CSI as UTF-8
  CHECK(Printable("\x9b") == "\\x9b");                            // and as a bare byte
  CHECK(Printable("x\xe2\x80\xaegpj.exe") == "x\\u202egpj.exe");  // right-to-left override
  CHECK(Printable(absl::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(Printable("\x7f") == "\\x7f");
  CHECK(Printable("grüße/日本") == "grüße/日本");
}

TEST_CASE("what is UTF-8 follows the Unicode standard") {
  CHECK(IsUtf8(""));
  CHECK(IsUtf8("\xf0\x9f\x98\x80"));
  CHECK_FALSE(IsUtf8("\xc0\xaf"));          // overlong
  CHECK_FALSE(IsUtf8("\xe0\x80\x80"));      // overlong
  CHECK_FALSE(IsUtf8("\xed\xa0\x80"));      // surrogate
  CHECK_FALSE(IsUtf8("\xf4\x90\x80\x80"));  // above U+10FFFF
  CHECK_FALSE(IsUtf8("\xe2\x82"));          // cut off
  CHECK(ToUtf8("a\xff\xe2\x82") == "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_CASE("a quoted word is read back by a shell as the same bytes") {
  CHECK(ShellQuote("plain-1.0/a_b") == "plain-1.0/a_b");
  CHECK(ShellQuote("") == "''");
  CHECK(ShellQuote("two words") == "'two words'");
  CHECK(ShellQuote("it's") == "'it'\\''s'");
  CHECK(ShellQuote("~root") == "'~root'");
  CHECK(ShellQuote("$HOME;`id`") == "'$HOME;`id`'");
  CHECK(ShellQuote("a\nb'c\\") == "$'a\\nb\\'c\\\\'");
  CHECK(ShellQuoteAll({"sh", "-c", "echo hi"}) == "sh -c 'echo hi'");
}

TEST_CASE("text is cut to columns, not to bytes") {
  CHECK(DisplayWidth("abc") == 3);
  CHECK(DisplayWidth("日本") == 4);
  CHECK(CutToWidth("abcdef", 6) == "abcdef");
  CHECK(CutToWidth("abcdef", 5) == "abcd…");
  CHECK(CutToWidth("日本語", 4) == "日…");
  CHECK(CutToWidth("abc", 0).empty());
  CHECK(CutHead("abcdef", 6) == "abcdef");
  CHECK(CutHead("abcdef", 5) == "…cdef");
  CHECK(CutHead("日本語", 4) == "…語");
  CHECK(PadRight("é", 3) == "é  ");
  CHECK(PadLeft("7", 3) == "  7");
}

}  // namespace agentmon
