// Whole grammars in the manner of those that llama.cpp brings and of those that it makes from schemas.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "grammar/gbnf.h"
#include "tests/grammar/follow.h"

namespace quire::grammar {
namespace {

struct File {
  const char* name;
  const char* text;
  std::vector<std::string> yes;
  std::vector<std::string> no;
};

void PrintTo(const File& file, std::ostream* out) { *out << file.name; }

class GbnfFiles : public testing::TestWithParam<File> {};

TEST_P(GbnfFiles, PermitsItsTextsAndNoOthers) {
  const auto grammar = gbnf_grammar(GetParam().text);
  ASSERT_TRUE(grammar) << grammar.error();
  QUIRE_NEEDS_XGRAMMAR();
  expect_texts(*grammar, GetParam().yes, GetParam().no);
}

// Line breaks inside parentheses, comments between symbols, a class of characters that are operators outside.
const File kGame = {
    "game",
    R"gbnf(# moves of a board game
root ::= (
    # the first pair
    "1. " move " " move "\n"

    # then pairs with a number of one or two digits
    ([1-9] [0-9]? ". " move " " move "\n")+
)

move ::= (pawn | piece | castle) [+#]?   # check or mate

piece  ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn   ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
)gbnf",
    {"1. e4 e5\n2. Nf3 Nc6\n", "1. e4 O-O+\n12. exd8=Q# O-O-O\n"},
    {"1. e4 e5\n", "1. e4 e5\n2. Nf3 Nc6", "1. e9 e5\n2. a1 a2\n", "1. e4 O-O-O-O\n2. a1 a2\n"}};

// Recursion through several rules, an optional rule for white space, rules before root.
const File kSums = {"sums",
                    R"gbnf(ws ::= [ \t\n]*
num ::= [0-9]+ ws
ident ::= [a-z] [a-z0-9_]* ws
term ::= ident | num | "(" ws expr ")" ws
expr ::= term ([-+*/] term)*
root  ::= (expr "=" ws term "\n")+
)gbnf",
                    {"1 +2 = 3\n", "a*(b_1 -c)/2= x\ny=1\n", "((1))=1\n"},
                    {"1 += 3\n", "(1=1\n", "1=2", "=1\n", "1=1+1\n"}};

// A small language: keywords, quoted quotation marks, escapes in classes, alternatives over several lines.
const File kLanguage = {
    "language",
    R"gbnf(root ::= (declaration)*

declaration ::= dataType identifier "(" parameter? ")" "{" statement* "}"

dataType  ::= "int" ws | "float" ws | "char" ws
identifier ::= [a-zA-Z_] [a-zA-Z_0-9]*

parameter ::= dataType identifier

statement ::=
    ( dataType identifier ws "=" ws expression ";" ) |
    ( identifier ws "=" ws expression ";" ) |
    ( identifier ws "(" argList? ")" ";" ) |
    ( "return" ws expression ";" ) |
    ( "while" "(" condition ")" "{" statement* "}" ) |
    ( "if" "(" condition ")" "{" statement* "}" ("else" "{" statement* "}")? ) |
    ( singleLineComment )

condition ::= expression relationOperator expression
relationOperator ::= ("<=" | "<" | "==" | "!=" | ">=" | ">")

expression ::= term (("+" | "-") term)*
term ::= factor(("*" | "/") factor)*

factor ::= identifier | number | unaryTerm | funcCall | "(" expression ")" | string
unaryTerm ::= "-" factor
funcCall ::= identifier "(" argList? ")"
argList ::= expression ("," ws expression)*

number ::= [0-9]+
string ::= "\"" ( [^"\\] | "\\" ["\\/bfnrt] )* "\""

singleLineComment ::= "//" [^\n]* "\n"

ws ::= ([ \t\n]+)
)gbnf",
    {"", "int main(){return 0;}", "int f(char c){x = -g(1, c)*(2+y);if(x<=3){y = 1;}else{//no\n}}",
     "float h(){s (\"a\\\"b\");while(1!=2){}}"},
    {"int main(){return 0}", "int main(){returnx;}", "int 1f(){}", "int f(){if(x){y = 1;}}",
     "int f(){s (\"a\"b\");}"}};

// Characters beyond ASCII: by themselves, in ranges and by escapes of all lengths.
const File kScripts = {"scripts",
                       R"gbnf(root   ::= latin+ ([ \t\n] latin+)* | other
latin  ::= [a-zà-öø-ÿ\u0100-\u017F]
other  ::= jp-char+ ([ \t\n、。] jp-char+)* "\U0001F98A"? | "\xE9" [^\x00-\x7F]
jp-char     ::= hiragana | katakana | cjk
hiragana    ::= [ぁ-ゟ]
katakana    ::= [ァ-ヿ]
cjk         ::= [一-鿿]
)gbnf",
                       {"été", "ča žluť", "日本語", "かな カナ、漢字。語🦊", "éß", "é🦊"},
                       {"", "日a", "かな、", "É", "🦊"}};

// Counts of every form, on characters, texts, groups and rules.
const File kCounts = {"counts",
                      R"gbnf(root ::= "a"{2} "bc"{1,2} ("d" | "e"){0,2} digit{1,} "f"{0,2} "!" ?
digit ::= [0-9]
)gbnf",
                      {"aabc0", "aabcbcde12ff!", "aabcee7!"},
                      {"abc0", "aabc", "aabcbcbc0", "aabcdee1", "aabc0fff", "aabbc0"}};

const File kList = {"list",
                    R"gbnf(root ::= item+

# Excludes various line break characters
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n"
)gbnf",
                    {"- a\n", "- é 日\n- - -\n"},
                    {"", "- \n", "- a", "-a\n", "- a\u2028b\n", "- a\u0085\n", "- a\r\n"}};

const File kJson = {
    "json",
    R"gbnf(root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
)gbnf",
    {"{}", "{\"a\": [1, -2.5e+3, true, {}],\n\t\"b\\u00e9\\n\": null} ", "{\"é\":\"日\"}"},
    {"", "[]", "{\"a\"}", "{\"a\":01}", "{\"a\":\"\\x\"}", "{\"a\":1,}", "{\"a\":\"\n\"}", "{  }"}};

// What llama.cpp makes of a schema: names with dashes, an excluded name as a tree of classes, empty
// alternatives.
const File kConverted = {
    "converted",
    R"gbnf(alternative-0 ::= person
alternative-1 ::= "null" space
additional-k ::= ["] ( [a] ([g] ([e] char+ | [^"e] char*) | [^"g] char*) | [^"a] char* )? ["] space
additional-kv ::= additional-k ":" space integer
age-kv ::= "\"age\"" space ":" space integer
age-rest ::= ( "," space additional-kv )*
char ::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4})
integer ::= ("-"? ([0] | [1-9] [0-9]{0,15})) space
person ::= "{" space  (age-kv age-rest | additional-kv ( "," space additional-kv )* )? "}" space
root ::= alternative-0 | alternative-1
space ::= | " " | "\n"{1,2} [ \t]{0,20}
)gbnf",
    {"null", "{}", "{\"age\": 3}", "{\"age\":3, \"ax\":4,\"agee\":5,\"b\":0}", "{\"\":-1}\n\n  "},
    {"{\"age\":3,\"age\":4}", "{\"b\":1,\"age\":2}", "{\"age\":03}", "{\"b\":\"x\"}", "nul"}};

INSTANTIATE_TEST_SUITE_P(All, GbnfFiles,
                         testing::Values(kGame, kSums, kLanguage, kScripts, kCounts, kList, kJson,
                                         kConverted),
                         [](const auto& of) { return of.param.name; });

TEST(GbnfFilesEdges, LineEndsOfWindowsAndNoLastLineEnd) {
  QUIRE_NEEDS_XGRAMMAR();
  const auto grammar =
      gbnf_grammar("# first\r\nroot ::= item (\",\" item)*\r\n\r\nitem ::= [a-c] |\r\n  \"d\" # last");
  ASSERT_TRUE(grammar) << grammar.error();
  const Follower follower(*grammar);
  EXPECT_TRUE(follower.accepts("a,d,c"));
  EXPECT_FALSE(follower.accepts("a,e"));
  EXPECT_FALSE(follower.accepts("a\r\n"));
}

}  // namespace
}  // namespace quire::grammar
