#include "bench/regret_workloads.h"

#include "base/bits.h"

namespace farside::bench {
namespace {

constexpr const char* kPatterns = "{apps}/patterns";

constexpr const char* kLines = R"(
awk 'BEGIN { x = 1; for (i = 0; i < {n}; i++) printf "%d%090d\n", x = (x * 16807) % 2147483647, i }' > lines)";

// A table in memory, filled, indexed, and read by its index.
constexpr const char* kSqlite = R"({far} sqlite3 :memory: "PRAGMA temp_store = MEMORY;
CREATE TABLE t (k INTEGER, v TEXT);
INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n})
  SELECT i * 2654435761 % {n}, printf('%060d', i) FROM n;
CREATE INDEX x ON t (k);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n} / 16)
  SELECT sum(length(v)) FROM n JOIN t ON k = i * 40503 % {n};")";

// Objects that are made in one order, and used in another.
constexpr const char* kPython = R"({far} env PYTHONHASHSEED=0 python3 -I -S -c "
import random
random.seed(1)
d = {i: (i, str(i)) for i in range({n})}
keys = list(d)
random.shuffle(keys)
total = 0
for k in keys[::2]: total += d[k][0] + len(d[k][1])
print(total)
")";

constexpr const char* kNode = R"({far} node -e "
const all = [];
for (let i = 0; i < {n}; i++) all.push({key: i * 40503 % 1000003, text: 'text ' + i});
const map = new Map(all.map(one => [one.text, one]));
all.sort((a, b) => a.key - b.key);
let sum = 0;
for (const one of all) sum = (sum * 31 + map.get(one.text).key) % 1000003;
console.log(sum);")";

// A map whose entries are replaced while more garbage is made.
constexpr const char* kJavaSource = R"(cat > Work.java <<'END'
import java.util.*;
class Work {
  public static void main(String[] words) {
    int count = Integer.parseInt(words[0]);
    Map<Integer, String> map = new HashMap<>();
    TreeMap<String, Integer> tree = new TreeMap<>();
    Random random = new Random(1);
    long sum = 0;
    for (int i = 0; i < 2 * count; i++) {
      int key = random.nextInt(count);
      String old = map.put(key, "value " + i);
      if (old != null) tree.remove(old);
      tree.put("value " + i, key);
      if (i % 4 == 0 && map.get(random.nextInt(count)) != null) sum += i;
    }
    for (String text : tree.keySet()) sum = sum * 31 + text.length();
    System.out.println(sum);
  }
}
END
java -m jdk.compiler/com.sun.tools.javac.Main Work.java)";
constexpr const char* kJavaSerial = "{far} java -Xms32m -Xmx400m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 Work {n}";
constexpr const char* kJavaG1 = "{far} java -Xms32m -Xmx400m -XX:+UseG1GC -XX:TieredStopAtLevel=1 Work {n}";

constexpr const char* kSource = R"(
for header in algorithm functional iostream map regex set string unordered_map vector; do echo "#include <$header>"; done > a.cc
for i in $(seq {n}); do
  echo "struct S$i { int key; std::string text; auto operator<=>(const S$i&) const = default; };"
  echo "size_t f$i(int n) { std::map<int, S$i> m; std::set<S$i> s; std::vector<S$i> v;"
  echo "  for (int i = 0; i < n; i++) { m[i] = {i, std::to_string(i)}; s.insert(m[i]); v.push_back(m[i]); }"
  echo "  std::sort(v.begin(), v.end()); return m.size() + s.size() + v.size(); }"
done >> a.cc)";

// Keys stored in order, and read in another: half of the reads are of a tenth of the keys.
constexpr const char* kRedisCommands = R"(
awk 'BEGIN { value = sprintf("%0500d", 1); for (i = 0; i < {n}; i++) print "SET key:" i " " value }' > sets
awk 'BEGIN { x = 1; for (i = 0; i < {n}; i++) {
  x = (x * 16807) % 2147483647; print "BITCOUNT key:" x % (i % 2 ? {n} : int({n} / 10)) } }' > gets)";
constexpr const char* kRedis = R"(
{far} redis-server --port 0 --unixsocket "$PWD/socket" --save '' --daemonize no > log &
until [ -S socket ] && redis-cli -s socket ping > /dev/null 2>&1; do sleep 0.02; done
redis-cli -s socket --pipe < sets | tail -1
redis-cli -s socket --pipe < gets | tail -1
redis-cli -s socket shutdown nosave
wait)";

// An application's figures differ from run to run, its checksum does not.
#define FARSIDE_APPLICATION(name) \
  { name, "{apps}/" name, 1, "", "{far} {apps}/" name " --size {n} --threads 1 | grep -o '\"checksum\": *\"[^\"]*\"'" }
#define FARSIDE_PATTERN(name, pattern) \
  { name, kPatterns, kMiB, "", "{far} {apps}/patterns " pattern " {n}" }

constexpr RegretWorkload kWorkloads[] = {
    FARSIDE_PATTERN("sequential", "stream"),
    FARSIDE_PATTERN("stride", "stride"),
    FARSIDE_PATTERN("random", "random"),
    FARSIDE_PATTERN("zipf", "zipf"),
    FARSIDE_PATTERN("loop", "loop"),
    FARSIDE_PATTERN("phases", "phases"),
    FARSIDE_PATTERN("hot set beside a stream", "hot_set"),
    FARSIDE_PATTERN("zones", "zones"),
    FARSIDE_PATTERN("blocks", "blocks"),
    FARSIDE_PATTERN("transposed matrix", "transposed"),
    FARSIDE_APPLICATION("analytics"),
    FARSIDE_APPLICATION("cross_sections"),
    FARSIDE_APPLICATION("psrs_sort"),
    {"GNU sort", "sort", 192, kLines, "{far} sort --parallel=1 --buffer-size=75% lines | cksum"},
    {"SQLite", "sqlite3", 256, "", kSqlite},
    {"Python", "python3", 500, "", kPython},
    {"Node.js", "node", 400, "", kNode},
    {"Java serial", "java", 400, kJavaSource, kJavaSerial},
    {"Java G1", "java", 400, kJavaSource, kJavaG1},
    {"g++", "g++", 8 * kMiB, kSource, "{far} g++ -std=c++20 -O0 -S -o - a.cc | cksum"},
    {"redis", "redis-server", 650, kRedisCommands, kRedis},
};
#undef FARSIDE_APPLICATION
#undef FARSIDE_PATTERN

}  // namespace

std::span<const RegretWorkload> regret_workloads() { return kWorkloads; }

std::vector<std::string> regret_workload_names() {
  std::vector<std::string> names;
  for (const RegretWorkload& workload : kWorkloads) names.emplace_back(workload.name);
  return names;
}

}  // namespace farside::bench
