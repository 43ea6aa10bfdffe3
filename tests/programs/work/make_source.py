"""make_source.py c FUNCTIONS FILE, or c++ CLASSES FILE: a large source file, the same each time."""
import sys

C = """
static int table{n}[64] = {{{n}, 1, 2, 3}};
int work{n}(int a, int b) {{
  int sum = a;
  for (int i = 0; i < 64; i++) {{
    switch ((i * b + {n}) & 7) {{
      case 0: sum += table{n}[i] * a; break;
      case 1: sum ^= i << (b & 7); break;
      case 2: sum -= table{p}[(i + a) & 63]; break;
      case 5: sum = sum * 31 + {n}; break;
      default: table{n}[i] += sum > {n} ? sum : b;
    }}
  }}
  return sum + (a > 0 ? work{p}(a - 1, sum) : b);
}}
"""
C_START = "static int table0[64];\nint work0(int a, int b) { return a + b + table0[a & 63]; }\n"
C_END = "#include <stdio.h>\nint main(void) {{ printf(\"%d\\n\", work{n}(40, 7)); return 0; }}\n"

CXX = """
struct Key{n} {{ int number; std::string text; auto operator<=>(const Key{n}&) const = default; }};
int work{n}(const std::vector<std::string>& words) {{
  std::map<Key{n}, std::vector<std::function<int(int)>>> table;
  for (const auto& word : words)
    table[{{int(word.size()), word}}].push_back([word](int a) {{ return a + int(word.size()) + {n}; }});
  std::regex pattern("[a-z]+{n}");
  int sum = 0;
  for (auto& [key, calls] : table)
    for (auto& call : calls) sum += call(key.number) + std::regex_match(key.text, pattern);
  return sum;
}}
"""
CXX_START = "".join(f"#include <{name}>\n" for name in ("functional", "map", "regex", "string", "vector"))

language, count, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with open(path, "w", encoding="ascii") as file:
    if language == "c":
        file.write(C_START + "".join(C.format(n=n, p=n - 1) for n in range(1, count + 1)) + C_END.format(n=count))
    else:
        file.write(CXX_START + "".join(CXX.format(n=n) for n in range(count)))
