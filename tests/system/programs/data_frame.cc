// Executes every operator of data frames near, on a memory server and where it is cheaper, over all types with nulls,
// and compares the results bit by bit. data_frame near|server: also where the server must, or cannot, execute them.
#include <cstdio>

#include "tests/data_frame/queries.h"
#include "tests/data_frame/table.h"

namespace {

using farside::data_frame;
using namespace farside::testing;
using namespace farside::frame;

template <typename T>
void add(data_frame& to, const char* name, std::mt19937_64& random, size_t rows, data_type type = {type_of<T>()}) {
  auto values = random_values<T>(random, rows, true);
  for (auto& v : values) {
    if constexpr (sizeof(T) == 8) {
      if (v) *v /= 1 << 17;  // sums fit
    }
  }
  to.add(name, column_of(values, type));
}

data_frame make_table(size_t rows) {
  std::mt19937_64 random(rows);
  data_frame made;
  std::vector<int32_t> ids(rows);
  for (size_t i = 0; i < rows; i++) ids[i] = static_cast<int32_t>(i);
  made.add("id", column::of<int32_t>(ids));
  add<int8_t>(made, "i8", random, rows);
  add<int16_t>(made, "i16", random, rows);
  add<int32_t>(made, "i32", random, rows);
  add<int64_t>(made, "i64", random, rows);
  add<uint8_t>(made, "u8", random, rows);
  add<uint16_t>(made, "u16", random, rows);
  add<uint32_t>(made, "u32", random, rows);
  add<uint64_t>(made, "u64", random, rows);
  add<float>(made, "f32", random, rows);
  add<double>(made, "f64", random, rows);
  add<bool>(made, "b", random, rows);
  made.add("text", column_of(random_values<std::string>(random, rows, true)));
  add<int32_t>(made, "date", random, rows, {type_id::date32});
  add<int64_t>(made, "ts", random, rows, {type_id::timestamp});
  return made;
}

bool is_same(const column& a, const column& b) {
  if (a.type() != b.type() || a.rows() != b.rows() || a.nulls() != b.nulls()) return false;
  for (int64_t row = 0; row < a.rows(); row++) {
    if (a.is_null(row) != b.is_null(row)) return false;
    if (a.is_null(row)) continue;
    if (a.type().id == type_id::utf8 && a.get<std::string_view>(row) != b.get<std::string_view>(row)) return false;
    if (a.type().id == type_id::boolean && a.get<bool>(row) != b.get<bool>(row)) return false;
    size_t width = width_of(a.type().id);
    auto at = static_cast<size_t>(row) * width;
    if (memcmp(a.view().as<char>() + at, b.view().as<char>() + at, width) != 0) return false;
  }
  return true;
}

bool is_same(const data_frame& a, const data_frame& b) {
  if (a.names() != b.names()) return false;
  for (size_t c = 0; c < a.columns(); c++) {
    if (!is_same(a[c], b[c])) return false;
  }
  return true;
}

bool check(const data_frame& t, const char* query, placement where) {
  bool same = is_same(run(t, query, placement::near), run(t, query, where));
  if (!same) printf("%s of %zu rows: another result\n", query, t.rows());
  return same;
}

bool refuses(const data_frame& t) {
  try {
    run(t, "filter", placement::server);
  } catch (const std::system_error&) {
    return true;
  }
  printf("no error without a server\n");
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  bool has_server = argc == 2 && !strcmp(argv[1], "server");
  bool ok = has_server == farside::offload::available();
  for (size_t rows : {0, 1, 1025, 60000}) {
    data_frame t = make_table(rows);
    for (const char* query : kQueries) {
      if (has_server) ok &= check(t, query, placement::server);
      for (int i = 0; i < 3; i++) ok &= check(t, query, placement::automatic);
    }
    if (!has_server && rows > 0) ok &= refuses(t);
  }
  printf(ok ? "done\n" : "wrong\n");
  return ok ? 0 : 1;
}
