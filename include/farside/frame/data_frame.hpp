// farside::data_frame: a table with named columns in far memory, in Apache Arrow's layout, and operators on it. C++20,
// headers only; link with -lfarside.
//
//   using namespace farside::frame;
//   farside::data_frame rides;
//   rides.add("metres", column::of<int32_t>(metres));
//   rides.add("fare", column::of<double>(fares));
//   farside::data_frame dear = rides.filter(col("fare") / col("metres") > 0.01);
//   farside::data_frame sums = rides.aggregate({{"total", aggregate_op::sum, col("fare")}}, col("metres") > 500);
//   printf("%zu rides, %f in all\n", dear.rows(), sums["total"].get<double>(0));
//
// Every operator takes `placement`: near, server, or automatic (the default), which chooses the faster way by measured
// cost: execute.hpp. The result is the same, to the last bit, wherever an operator runs.
//
// Semantics, as in SQL where nothing else is stated:
// - Aggregates leave out nulls. Of no values, count is 0 and the others are null. Without an expression, count counts
//   rows. utf8 columns can be counted only.
// - The sum of integers and booleans is exact; its type is int64 (uint64 of unsigned integers). std::overflow_error if
//   it does not fit. The sum of floating-point numbers is a double, added with Neumaier's compensation: its error does
//   not grow with the number of rows. A mean is a double, of the exact sum where that is one.
// - A NaN is greater than all numbers for minimum, maximum and top_k, and equal to other NaNs as a key; 0 equals -0.
// - Groups are in order of their first rows. Null is a key like others in group_by, and matches nothing in join.
// - filter, join and top_k keep the order of rows.
//
// A data frame's columns are immutable and shared between its copies and with results, so copying it is cheap.
// Thread-safety: as of a std::vector of std::shared_ptr. Exceptions: std::invalid_argument (unknown or duplicate
// column, a type that does not fit, different numbers of rows), std::overflow_error, std::length_error (more than 2 GiB
// of text in a column, more than 2^32 - 1 groups), std::bad_alloc, and std::system_error with placement::server.
// Sources of the ideas: AIFM 8.1.2 and its figure 8 (docs/references.md). Guide: docs/guide/dataframes.md.
#ifndef FARSIDE_FRAME_DATA_FRAME_HPP
#define FARSIDE_FRAME_DATA_FRAME_HPP

#include <farside/frame/data_frame_class.hpp>
#include <farside/frame/data_frame_operators.hpp>

#endif
