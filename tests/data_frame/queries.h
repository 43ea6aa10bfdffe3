// Queries with every operator over a table of every type, which tests/system/programs/data_frame.cc compares near with
// on a memory server. python/tests/compute.py compares such queries with pyarrow and DuckDB.
#pragma once
#include "farside/frame/data_frame.hpp"

namespace farside::testing {

using frame::aggregate_op, frame::col, frame::placement;

constexpr const char* kQueries[] = {"copy", "filter", "nulls", "with", "aggregate", "group", "hours", "join", "top"};

inline data_frame run(const data_frame& t, const std::string& query, placement where) {
  if (query == "copy") return t;
  if (query == "filter")
    return t.filter((col("i32") > 100 && col("f64") <= 0.5) || col("text") == "bb" || col("b"), where);
  if (query == "nulls") return t.filter(col("f64").is_null() || !(col("i64") != 7), where);
  if (query == "with") {
    return t.with("x", sqrt(col("u16")) / 2 - col("f64") * col("i8"), where)
        .with("h", hour(col("ts")), where)
        .with("m", month(col("date")), where);
  }
  if (query == "aggregate") {
    return t.aggregate({{"n"},
                        {"c", aggregate_op::count, col("text")},
                        {"s", aggregate_op::sum, col("i64")},
                        {"su", aggregate_op::sum, col("u64")},
                        {"sf", aggregate_op::sum, col("f64")},
                        {"lo", aggregate_op::minimum, col("f32")},
                        {"hi", aggregate_op::maximum, col("ts")},
                        {"m", aggregate_op::mean, col("i32")}},
                       col("i8") < 60, where);
  }
  if (query == "group") {
    return t.group_by({"text", "b"},
                      {{"n"},
                       {"s", aggregate_op::sum, col("i16")},
                       {"m", aggregate_op::mean, col("f64")},
                       {"hi", aggregate_op::maximum, col("date")}},
                      {}, where);
  }
  if (query == "hours") {
    return t.group_by({{"h", hour(col("ts"))}}, {{"n"}, {"lo", aggregate_op::minimum, col("u32")}}, col("i32") > 0,
                      where);
  }
  if (query == "join") {
    data_frame first = t.filter(col("id") < 40, where), small;
    small.add("text", first["text"]);
    small.add("i8", first["i8"]);
    small.add("other", first["id"]);
    return t.select({"id", "text", "i8"}).join(small, {"text", "i8"}, {}, where);
  }
  if (query == "top") return t.top_k(50, col("f64"), data_frame::order::descending, col("u8") > 20, where);
  throw std::invalid_argument("no such query");
}

}  // namespace farside::testing
