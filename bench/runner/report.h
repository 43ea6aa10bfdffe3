// Text, goals and charts of a benchmark's results, made as its tables say. Pure functions.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/runner/benchmark.h"
#include "measure/statistics.h"
#include "report/files.h"

namespace farside::bench {

// `document` is the result of run_benchmark().
std::string text_of(const Benchmark& benchmark, const nlohmann::json& document);
std::vector<Goal> goals_of(const Benchmark& benchmark, const nlohmann::json& document);
NamedFiles plots_of(const Benchmark& benchmark, const nlohmann::json& document);

// Adds what the target says of the rows, which has the target's limit.
void add_goals(const Target& target, const nlohmann::json& rows, std::vector<Goal>* goals);

// The goals as lines below a line that says what they are; "" for none.
std::string goals_text(const std::vector<Goal>& goals);

// ---- Rows ----

// Whether the row has these members; a list stands for any of its values.
bool has_members(const nlohmann::json& row, const nlohmann::json& members);
// The first with the members of the second; those that are null there are left out.
nlohmann::json merged(nlohmann::json members, const nlohmann::json& others);
// A figure, or the median of one. Empty if the row lacks it.
std::optional<double> figure_of(const nlohmann::json& row, const std::string& figure);

}  // namespace farside::bench
