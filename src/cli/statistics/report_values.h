// Values of a report in JSON. It comes from other processes: a member that is missing or of another type counts as zero
// or as empty.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace farside::cli {

inline double number(const nlohmann::json& from, const char* name) {
  auto found = from.find(name);
  return found != from.end() && found->is_number() ? found->get<double>() : 0;
}

inline uint64_t count(const nlohmann::json& from, const char* name) {
  return static_cast<uint64_t>(number(from, name));
}

inline std::string text(const nlohmann::json& from, const char* name) {
  auto found = from.find(name);
  return found != from.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace farside::cli
