// The suites of the benchmarks in this folder, and what several of them measure.
#pragma once
#include "bench/runner/benchmark.h"
#include "measure/configurations.h"

namespace farside::bench {

Suite paging_suite();
Suite fibers_suite();
Suite hints_suite();
Suite writeback_suite();
Suite file_accesses_suite();
Suite file_programs_suite();
Suite offload_suite();
Suite replicas_suite();
Suite reads_suite();
Suite redis_suite();
Suite policies_suite();
Suite applications_suite();
Suite far_types_suite();
Suite regret_suite();

std::vector<std::string> application_names();
std::vector<std::string> far_type_names();  // of the applications of far_types_suite()

AccessSettings access_settings(const Settings& settings);

// The rows of what measure_far() and its likes returned: one for each workload and number of threads, and one for
// random reads that miss.
nlohmann::json access_rows(const nlohmann::json& measured);
inline constexpr const char* kMisses = "random read that misses";

// Random reads a second by so many fibers on one worker, which make `accesses` together.
double time_fibers(FarMemory& far, const Arena& arena, unsigned count, uint64_t accesses, bool hinted);

}  // namespace farside::bench
