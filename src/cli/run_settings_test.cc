#include "cli/run_settings.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "abi/run_variables.h"
#include "base/bits.h"
#include "launch/preload.h"

namespace farside::cli {
namespace {

class RunSettingsTest : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override {
    clear();
    set_log_level(LogLevel::kWarning);
  }
  static void clear() {
    for (const OptionRow& row : option_rows()) unsetenv(std::string(row.variable).c_str());
    for (const char* name : {"FARSIDE_LOCL", kRunVariable}) unsetenv(name);
  }

  static GivenOptions parse(std::vector<std::string> arguments) {
    Command command("test", "");
    GivenOptions given;
    add_table_options(command, &given);
    EXPECT_EQ(command.run(std::move(arguments)), 0);
    return given;
  }

  static Options options(std::vector<std::string> arguments) {
    Result<RunSettings> settings = settle(parse(std::move(arguments)));
    EXPECT_TRUE(settings.ok()) << settings.status().text();
    return settings.ok() ? settings->options : Options();
  }

  static std::string refusal(std::vector<std::string> arguments) {
    Result<RunSettings> settings = settle(parse(std::move(arguments)));
    EXPECT_FALSE(settings.ok());
    return settings.status().text();
  }
};

TEST_F(RunSettingsTest, TheHelpHasFewOptionsAndTheOthersAreKeys) {
  Command command("test", "");
  GivenOptions given;
  add_table_options(command, &given);
  std::string help = command.help(), keys = tune_help();
  unsigned options = 0;
  for (const OptionRow& row : option_rows()) {
    if (row.scope == Scope::kInternal) continue;
    bool is_listed = keys.find(fmt::format("  {}=", row.key())) != keys.npos;
    EXPECT_EQ(is_listed, row.name.starts_with("--tune ")) << row.name;
    if (row.is_key()) continue;
    options++;
    const std::string& shown = row.rare ? keys : help;
    EXPECT_NE(shown.find(fmt::format("  {} ", row.name)), std::string::npos) << row.name;
    EXPECT_EQ(help.find(fmt::format("[{}]", row.variable)) == std::string::npos, row.rare) << row.variable;
  }
  EXPECT_LE(options, 18u);
}

TEST_F(RunSettingsTest, CommandLineWinsOverEnvironment) {
  setenv("FARSIDE_LOCAL", "nonsense", 1);
  setenv("FARSIDE_TUNE", "evictors=3", 1);
  Options o = options({"--local", "64M", "--quiet", "--tune=prefetch=off", "--tune", "policy=lru"});
  EXPECT_EQ(o.local.bytes, 64 * kMiB);
  EXPECT_EQ(o.evictors, 3U);
  EXPECT_TRUE(o.quiet);
  EXPECT_FALSE(o.prefetch);
  EXPECT_EQ(o.policy, PolicyKind::kLru);
}

TEST_F(RunSettingsTest, ErrorsNameTheFlagOrTheVariable) {
  EXPECT_TRUE(refusal({"--fault", "magic"}).starts_with("--fault=magic is not valid; use auto, signal or handler"));
  EXPECT_TRUE(refusal({"--far", ""}).starts_with("--far has an empty value"));
  EXPECT_TRUE(refusal({"--far="}).starts_with("--far has an empty value"));
  setenv("FARSIDE_TUNE", "policy=lifo", 1);
  EXPECT_TRUE(refusal({}).starts_with("FARSIDE_TUNE policy=lifo is not valid; use fifo, lru, priority or 2q"));
}

TEST_F(RunSettingsTest, AnUnknownVariableNamesTheNearest) {
  setenv("FARSIDE_LOCL", "64M", 1);
  EXPECT_NE(refusal({}).find("did you mean FARSIDE_LOCAL?"), std::string::npos);
}

TEST_F(RunSettingsTest, ARunWithinARunHasItsOptions) {
  Options outer = options({"--local", "64M", "--stats", "json:s", "--metrics", "h:1", "--tune",
                           "policy=lru,overflow=/tmp:64M,compress=lz4", "--far-memory", "64M"});
  ASSERT_TRUE(copy_text("tcp://127.0.0.1:1", outer.far_address, "").ok());  // of the server of the outer run
  ASSERT_TRUE(copy_text("secret", outer.token, "").ok());
  setenv("FARSIDE_FAULT", "signal", 1);
  ASSERT_TRUE(hand_over(outer).ok());
  EXPECT_EQ(getenv("FARSIDE_FAULT"), nullptr);
  setenv("FARSIDE_LOCAL", "32M", 1);
  Options inner = options({"--tune", "evictors=2"});
  EXPECT_EQ(inner.local.bytes, 32 * kMiB);
  EXPECT_EQ(inner.policy, PolicyKind::kLru);
  EXPECT_EQ(inner.evictors, 2U);
  EXPECT_STREQ(inner.token, "secret");
  EXPECT_STREQ(inner.stats, "");
  EXPECT_STREQ(inner.metrics, "");
  EXPECT_STREQ(options({"--far", "file:/other?size=1G"}).token, "");
  setenv(kRunVariable, "0", 1);
  EXPECT_NE(refusal({}).find("unset the variable"), std::string::npos);
}

TEST_F(RunSettingsTest, WhatIsForTheServerOfTheRunIsRefusedWithOthers) {
  EXPECT_STREQ(options({"--tune", "overflow=/tmp:64M"}).overflow, "/tmp:64M");
  for (const char* far : {"tcp://127.0.0.1:1", "shm:///a", "file:/a?size=1G"}) {
    for (auto [option, value, named] : {std::tuple{"--tune", "overflow=/tmp:64M", "--tune overflow=/tmp:64M"},
                                        {"--tune", "compress=off", "--tune compress=off"},
                                        {"--far-memory", "128M", "--far-memory 128.0 MiB"}}) {
      std::string refused = refusal({option, value, "--far", far});
      EXPECT_TRUE(refused.starts_with(fmt::format("{} is for the server of this run", named))) << refused;
    }
    EXPECT_TRUE(refusal({"--offload", "--far", far}).starts_with("--offload is for the server of this run"));
  }
}

TEST_F(RunSettingsTest, WhatTheServerOfTheRunCannotDoIsRefused) {
  EXPECT_TRUE(refusal({"--tune", "overflow=x"}).starts_with("--tune overflow=x is not valid; use PATH:SIZE"));
  EXPECT_TRUE(refusal({"--tune", "compress=lz4", "--offload"}).starts_with("--tune compress=lz4 is not for a server"));
  EXPECT_TRUE(options({"--tune", "compress=off", "--offload"}).offload);
}

TEST_F(RunSettingsTest, FarMemoryFitsTheMachine) {
  Result<RunSettings> half = settle({});
  ASSERT_TRUE(half.ok());
  EXPECT_GT(half->far_memory(), 0U);
  EXPECT_EQ(settle(parse({"--far-memory", "128M"}))->far_memory(), 128 * kMiB);
  EXPECT_NE(refusal({"--far-memory", "900T"}).find("more than this machine has"), std::string::npos);
}

TEST_F(RunSettingsTest, TokenComesFromTheFilesFirstLine) {
  char path[] = "/tmp/farside-token-XXXXXX";
  close(mkstemp(path));
  EXPECT_NE(refusal({"--token-file", path}).find("empty first line"), std::string::npos);
  std::ofstream(path) << "secret\nmore\n";
  ::testing::internal::CaptureStderr();
  EXPECT_STREQ(options({"--token-file", path}).token, "secret");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  chmod(path, 0644);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(settle(parse({"--token-file", path})).ok());
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("run chmod 600"), std::string::npos);
  unlink(path);
  EXPECT_NE(refusal({"--token-file", path}).find("cannot read the token file"), std::string::npos);
}

// A program of the run may call farside in another directory.
TEST_F(RunSettingsTest, PathsOfCertificatesAreMadeAbsolute) {
  Options o = options({"--tls", "ca=ca.pem,required"});
  EXPECT_EQ(o.tls_ca, (std::filesystem::current_path() / "ca.pem").native());
  EXPECT_STREQ(o.tls_cert, "");
  EXPECT_TRUE(o.require_tls);
  EXPECT_NE(refusal({"--tls", "verify-clients"}).find("farside serve"), std::string::npos);
}

TEST_F(RunSettingsTest, StatisticsAndMetricsHaveTheirForms) {
  EXPECT_EQ(settle(parse({"--stats=json:out.json"}))->stats_file(), "out.json");
  EXPECT_NE(refusal({"--stats", "csv:x"}).find("json:FILE"), std::string::npos);
  EXPECT_NE(refusal({"--stats", "json:"}).find("json:FILE"), std::string::npos);
  Result<RunSettings> file = settle(parse({"--metrics", "file:/m"})), http = settle(parse({"--metrics", "h:1"}));
  EXPECT_EQ(file->metrics_file(), "/m");
  EXPECT_EQ(file->metrics_address(), "");
  EXPECT_EQ(http->metrics_file(), "");
  EXPECT_EQ(http->metrics_address(), "h:1");
}

}  // namespace
}  // namespace farside::cli
