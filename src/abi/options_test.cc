#include "abi/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "abi/option_values.h"

namespace farside {
namespace {

Status read(std::vector<const char*> environment, std::vector<GivenOption> given, Options* options) {
  environment.push_back(nullptr);
  return read_options(environment.data(), given, options);
}

std::string refusal(std::vector<const char*> environment, std::vector<GivenOption> given = {}) {
  Options options;
  Status status = read(std::move(environment), std::move(given), &options);
  EXPECT_FALSE(status.ok());
  return status.text();
}

// Values of each option: one that differs from the default, and what is out of its range.
struct Values {
  std::string other;
  std::vector<std::string> bad;
};
const std::map<std::string_view, Values> kValues = {
    {"--local",
     {"64M",
      {"7M", "0", "-5M", "0%", "101%", "lots", "5", "auto:", "auto:64M", "auto:7M-64M", "auto:64M-32M", "autos"}}},
    {"--slowdown", {"20%", {"0", "0.5", "1001", "-1", "much", "10%%"}}},
    {"--far", {"tcp://h:1", {"nonsense", "tcp://", "tcp:h:1", "file:near"}}},
    {"--replicas", {"2", {"0", "17", "1.5", "-1", "two", "2 "}}},
    {"--far-memory", {"128M", {"15M", "0", "-1", "much"}}},
    {"--offload", {"on", {"yes"}}},
    {"--patience", {"1.5", {"0.05", "29.5", "100", "-1", "soon", "inf", "nan"}}},
    {"--token-file", {"secret", {std::string(kPathBytes, 'x'), "a\nb"}}},
    {"--tls ca", {"ca.pem", {std::string(kPathBytes, 'x')}}},
    {"--tls cert", {"c.pem", {std::string(kPathBytes, 'x')}}},
    {"--tls key", {"k.pem", {std::string(kPathBytes, 'x')}}},
    {"--tls name", {"host", {std::string(300, 'x')}}},
    {"--tls required", {"on", {"yes"}}},
    {"--tls verify-clients", {"on", {"yes"}}},
    {"--fault", {"handler", {"magic", "Signal"}}},
    {"--huge", {"never", {"sometimes"}}},
    {"--stats", {"json:s", {"s", "json:", "xml:s"}}},
    {"--metrics", {"file:/m", {"m", "file:", ":1", "h:"}}},
    {"--timeline", {"run.svg", {std::string(kPathBytes, 'x')}}},
    {"--quiet", {"on", {"very"}}},
    {"--verbose", {"on", {"very"}}},
    {"--tune log", {"debug", {"loud"}}},
    {"--tune core", {"none", {"some"}}},
    {"--tune policy", {"lru", {"random"}}},
    {"--tune evictors", {"8", {"0", "9", "99", "x"}}},
    {"--tune prefetch", {"off", {"maybe"}}},
    {"--tune writeback", {"line", {"byte"}}},
    {"--tune paths", {"object", {"none"}}},
    {"--tune page-share", {"90%", {"0", "101", "all", "9%%"}}},
    {"--tune compress", {"lz4", {"maybe"}}},
    {"--tune overflow", {"/var/tmp:1G", {std::string(kPathBytes, 'x')}}},
    {"--tune space", {"64M", {"63M", "17T", "x"}}},
    {"--tune ucx", {"tcp,cma", {std::string(300, 'x')}}},
    {"FARSIDE_TRACE", {"trace", {std::string(kPathBytes, 'x')}}},
    {"FARSIDE_SAMPLE", {"sample", {std::string(kPathBytes, 'x')}}},
};

std::vector<const OptionRow*> rows_with_values() {
  std::vector<const OptionRow*> rows;
  for (const OptionRow& row : option_rows()) {
    if (row.set) rows.push_back(&row);
  }
  return rows;
}

// The texts of a value on a command line and in the environment, where the keys of an option are in one text.
GivenOption as_given(const OptionRow& row, const std::string& value) {
  if (!row.is_key()) return {&row, value};
  return {find_option(row.name.substr(0, row.name.find(' '))), fmt::format("{}={}", row.key(), value)};
}
std::string as_variable(const OptionRow& row, const std::string& value) {
  GivenOption given = as_given(row, value);
  return fmt::format("{}={}", given.row->variable, given.text);
}

TEST(OptionTable, NamesAndVariablesAgree) {
  for (const OptionRow& row : option_rows()) {
    EXPECT_EQ(find_option(row.name), &row);
    EXPECT_EQ(find_option(row.variable), &row);
    if (row.scope == Scope::kInternal) continue;
    std::string variable(row.name.substr(2));
    auto end = variable.begin() + static_cast<long>(std::min(variable.find(' '), variable.size()));
    std::transform(variable.begin(), end, variable.begin(), [](char c) { return c == '-' ? '_' : toupper(c); });
    EXPECT_EQ(row.variable, "FARSIDE_" + variable);
    EXPECT_FALSE(row.help.empty());
  }
}

// Some defaults are computed, so the table has words for them.
TEST(OptionTable, DefaultsAreThoseOfTheStruct) {
  const std::vector<std::string_view> in_words = {"--far", "--far-memory", "--tls ca", "--tls name", "--tune evictors"};
  for (const OptionRow* row : rows_with_values()) {
    bool is_computed = std::ranges::find(in_words, row->name) != in_words.end();
    if (row->default_value.empty() || is_computed) continue;
    Options options;
    ASSERT_TRUE(set_option(&options, row->name, kValues.at(row->name).other).ok());
    Status set = set_option(&options, row->name, row->default_value);
    EXPECT_TRUE(set.ok()) << set.text();
    EXPECT_EQ(options, Options()) << row->name;
  }
}

TEST(OptionTable, FlagAndVariableSetTheSame) {
  for (const OptionRow* row : rows_with_values()) {
    ASSERT_TRUE(kValues.contains(row->name)) << row->name << " needs values here";
    const std::string& other = kValues.at(row->name).other;
    Options given, variable;
    Status status = read({}, {as_given(*row, other)}, &given);
    EXPECT_TRUE(status.ok()) << status.text();
    status = read({as_variable(*row, other).c_str()}, {}, &variable);
    EXPECT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(given, variable) << row->name;
    EXPECT_NE(given, Options()) << row->name;
  }
}

TEST(OptionTable, BadValuesAreRefusedWithNameAndRange) {
  for (const OptionRow* row : rows_with_values()) {
    for (const std::string& bad : kValues.at(row->name).bad) {
      std::string flag = refusal({}, {as_given(*row, bad)}), variable = refusal({as_variable(*row, bad).c_str()});
      if (bad.size() > 200) continue;  // a longer one leaves no room in the message
      EXPECT_TRUE(flag.starts_with(fmt::format("{}={} is not valid; use ", row->name, bad))) << flag;
      EXPECT_TRUE(variable.starts_with(fmt::format("{}={} is not valid; use ", row->variable, bad))) << variable;
      std::string_view range = row->range;
      EXPECT_NE(flag.find(range.substr(0, 60)), flag.npos) << flag;
    }
  }
}

TEST(OptionTable, AnEmptyValueIsAnError) {
  for (const OptionRow& row : option_rows()) {
    Options options;
    Status status = set_option(&options, row.name, "");
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(std::string(status.text()).starts_with(fmt::format("{} has an empty value", row.name)));
  }
  EXPECT_TRUE(refusal({"FARSIDE_FAR="}).starts_with("FARSIDE_FAR has an empty value"));
  EXPECT_TRUE(refusal({"FARSIDE_TLS=ca="}).starts_with("FARSIDE_TLS ca has an empty value"));
  EXPECT_TRUE(refusal({"FARSIDE_TUNE=policy"}).starts_with("FARSIDE_TUNE policy has an empty value"));
}

TEST(OptionTable, WordsAreInTheOrderOfTheirEnumerators) {
  Options o;
  EXPECT_TRUE(set_option(&o, "--fault", "signal").ok() && o.fault == FaultMode::kSignal);
  EXPECT_TRUE(set_option(&o, "--huge", "always").ok() && o.huge == HugePages::kAlways);
  EXPECT_TRUE(set_option(&o, "--tune core", "all").ok() && o.core == CoreContent::kAll);
  EXPECT_TRUE(set_option(&o, "--tune log", "error").ok() && o.log == LogLevel::kError);
  EXPECT_TRUE(set_option(&o, "--tune log", "info").ok() && o.log == LogLevel::kInfo);
  EXPECT_TRUE(set_option(&o, "--tune writeback", "auto").ok() && o.writeback == WriteBack::kAuto);
  EXPECT_TRUE(set_option(&o, "--tune paths", "page").ok() && o.paths == Paths::kPageOnly);
  for (std::string_view name : words_of(find_option("--tune policy")->range)) {
    EXPECT_TRUE(set_option(&o, "--tune policy", name).ok());
    EXPECT_EQ(policy_name(o.policy), name);
  }
  PolicyKind kind;
  EXPECT_FALSE(policy_from_name("random", &kind));
}

TEST(Options, KeysAreSeparatedByCommas) {
  Options o;
  ASSERT_TRUE(set_option(&o, "--tune", "policy=fifo,ucx=tcp,cma,evictors=2").ok());
  EXPECT_EQ(o.policy, PolicyKind::kFifo);
  EXPECT_STREQ(o.ucx, "tcp,cma");
  EXPECT_EQ(o.evictors, 2u);
  ASSERT_TRUE(set_option(&o, "--tls", "ca=a.pem,required").ok());
  EXPECT_STREQ(o.tls_ca, "a.pem");
  EXPECT_TRUE(o.require_tls);
  ASSERT_TRUE(set_option(&o, "--tls", "required=off").ok());
  EXPECT_FALSE(o.require_tls);
}

TEST(Options, UnknownKeysNameTheNearestOrAll) {
  Options o;
  EXPECT_NE(std::string(set_option(&o, "--tune", "polcy=lru").text()).find("did you mean policy?"), std::string::npos);
  EXPECT_NE(std::string(set_option(&o, "--tls", "ca=a,requird").text()).find("did you mean required?"),
            std::string::npos);
  EXPECT_NE(std::string(set_option(&o, "--tls", "x=1").text()).find("ca, cert, key, name, required, verify-clients"),
            std::string::npos);
  EXPECT_FALSE(set_option(&o, "--tune", ",").ok());
}

TEST(Options, UnknownVariablesNameTheNearest) {
  EXPECT_NE(refusal({"FARSIDE_LOCALE=25%"}).find("did you mean FARSIDE_LOCAL?"), std::string::npos);
  EXPECT_NE(refusal({"FARSIDE_TOKEN=a secret"}).find("not an option"), std::string::npos);
  EXPECT_NE(refusal({"FARSIDE_TRAC=x"}).find("--help"), std::string::npos);
  Options o;
  EXPECT_TRUE(read({"PATH=/bin", "FARSIDE_RUN_FD=9", "FARSIDE_ANNOUNCE=1", "FARSIDE_STATIC_PROGRAM=/x"}, {}, &o).ok());
  EXPECT_EQ(o, Options());
}

TEST(Options, WhatIsGivenWins) {
  Options o;
  const OptionRow &local = *find_option("--local"), &tune = *find_option("--tune");
  ASSERT_TRUE(read({"FARSIDE_LOCAL=nonsense", "FARSIDE_TUNE=evictors=3,policy=lru"},
                   {{&local, "64M"}, {&tune, "policy=fifo"}}, &o)
                  .ok());
  EXPECT_EQ(o.local.bytes, 64 * kMiB);
  EXPECT_EQ(o.evictors, 3u);
  EXPECT_EQ(o.policy, PolicyKind::kFifo);
}

TEST(Options, DescriptionsHaveRangeAndDefault) {
  EXPECT_EQ(describe_option(*find_option("--fault")),
            "how page faults are served: auto, signal or handler (default auto)");
  EXPECT_EQ(describe_option(*find_option("--quiet")), "print nothing but errors");
}

}  // namespace
}  // namespace farside
