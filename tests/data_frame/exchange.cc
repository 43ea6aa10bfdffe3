// A shared object that DuckDB's and pyarrow's side of a test loads: runs a query on a record batch that another library
// made, and exports the result. 0, or -1 and a message.
#include <cstdio>
#include <cstring>

#include "farside/frame/data_frame.hpp"

namespace {

using farside::data_frame;
using namespace farside::frame;

data_frame run(const data_frame& t, const std::string& query) {
  if (query == "copy") return t;
  if (query == "filter") return t.filter((col("i32") > 100 && col("f64") <= 0.5) || col("text") == "bb" || col("b"));
  if (query == "nulls") return t.filter(col("f64").is_null() || !(col("i64") != 7));
  if (query == "with")
    return t.with("x", sqrt(col("u16")) / 2 - col("f64") * col("i8"))
        .with("h", hour(col("ts")))
        .with("m", month(col("date")));
  if (query == "aggregate") {
    return t.aggregate({{"n"},
                        {"c", aggregate_op::count, col("text")},
                        {"s", aggregate_op::sum, col("i64")},
                        {"su", aggregate_op::sum, col("u64")},
                        {"sf", aggregate_op::sum, col("f64")},
                        {"lo", aggregate_op::minimum, col("f32")},
                        {"hi", aggregate_op::maximum, col("ts")},
                        {"m", aggregate_op::mean, col("i32")}},
                       col("i8") < 60);
  }
  if (query == "group") {
    return t.group_by({"text", "b"}, {{"n"},
                                      {"s", aggregate_op::sum, col("i16")},
                                      {"m", aggregate_op::mean, col("f64")},
                                      {"hi", aggregate_op::maximum, col("date")}});
  }
  if (query == "hours")
    return t.group_by({{"h", hour(col("ts"))}}, {{"n"}, {"lo", aggregate_op::minimum, col("u32")}}, col("i32") > 0);
  if (query == "join") {
    data_frame small = t.filter(col("id") < 40).select({"text", "i8", "id"});
    data_frame renamed;
    renamed.add("text", small["text"]);
    renamed.add("i8", small["i8"]);
    renamed.add("other", small["id"]);
    return t.select({"id", "text", "i8"}).join(renamed, {"text", "i8"});
  }
  if (query == "top") return t.top_k(50, col("f64"), data_frame::order::descending, col("u8") > 20);
  throw std::invalid_argument("no such query");
}

}  // namespace

extern "C" int farside_exchange(const char* query, ArrowSchema* schema, ArrowArray* array, ArrowSchema* result_schema,
                                ArrowArray* result, char* message, size_t bytes) {
  try {
    run(data_frame::import_arrow(schema, array), query).export_arrow(result_schema, result);
    return 0;
  } catch (const std::exception& thrown) {
    snprintf(message, bytes, "%s", thrown.what());
    return -1;
  }
}
