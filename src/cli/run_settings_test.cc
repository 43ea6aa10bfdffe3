#include "cli/run_settings.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/bits.h"

namespace farside::cli {
namespace {

class RunSettingsTest : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override {
    clear();
    setenv("FARSIDE_LOG", "warning", 1);
    Options options;
    EXPECT_TRUE(set_option(&options, "FARSIDE_LOG", "warning").ok());
    unsetenv("FARSIDE_LOG");
  }
  static void clear() {
    for (const OptionName& name : option_names()) unsetenv(std::string(name.variable).c_str());
    unsetenv("FARSIDE_LOCL");
  }

  static GivenOptions parse(std::vector<std::string> arguments) {
    Command command("test", "");
    GivenOptions given;
    add_table_options(command, &given);
    EXPECT_EQ(command.run(std::move(arguments)), 0);
    return given;
  }

  static std::string refusal(std::vector<std::string> arguments) {
    Result<RunSettings> settings = settle(parse(std::move(arguments)));
    EXPECT_FALSE(settings.ok());
    return settings.status().text();
  }
};

TEST_F(RunSettingsTest, EveryOptionOfTheTableIsAFlag) {
  Command command("test", "");
  GivenOptions given;
  add_table_options(command, &given);
  std::string help = command.help();
  for (const OptionName& name : option_names()) {
    if (name.internal) continue;
    EXPECT_NE(help.find(std::string(name.flag) + " "), std::string::npos) << name.flag;
    EXPECT_NE(help.find("[" + std::string(name.variable) + "]"), std::string::npos) << name.variable;
  }
}

TEST_F(RunSettingsTest, CommandLineWinsOverEnvironment) {
  setenv("FARSIDE_LOCAL", "nonsense", 1);
  setenv("FARSIDE_EVICTORS", "3", 1);
  Result<RunSettings> settings = settle(parse({"--local", "64M", "--quiet", "--prefetch=off"}));
  ASSERT_TRUE(settings.ok()) << settings.status().text();
  EXPECT_EQ(settings->options.local.bytes, 64 * kMiB);
  EXPECT_EQ(settings->options.evictors, 3U);
  EXPECT_TRUE(settings->options.quiet);
  EXPECT_FALSE(settings->options.prefetch);
  EXPECT_TRUE(settings->embedded());
  EXPECT_STREQ(getenv("FARSIDE_LOCAL"), "64M");  // as the program reads it
}

TEST_F(RunSettingsTest, ErrorsNameTheFlagOrTheVariable) {
  EXPECT_TRUE(refusal({"--fault", "magic"}).starts_with("--fault=magic is not known"));
  clear();
  EXPECT_NE(refusal({"--local", "lots"}).find("lots"), std::string::npos);
  clear();
  setenv("FARSIDE_POLICY", "lifo", 1);
  EXPECT_TRUE(refusal({}).starts_with("FARSIDE_POLICY=lifo is not known"));
}

TEST_F(RunSettingsTest, AnUnknownVariableNamesTheNearest) {
  setenv("FARSIDE_LOCL", "64M", 1);
  EXPECT_NE(refusal({}).find("did you mean FARSIDE_LOCAL?"), std::string::npos);
}

TEST_F(RunSettingsTest, FarMemoryFitsTheMachine) {
  Result<RunSettings> half = settle({});
  ASSERT_TRUE(half.ok());
  EXPECT_GT(half->far_memory, 0U);
  EXPECT_EQ(settle(parse({"--far-memory", "128M"}))->far_memory, 128 * kMiB);
  EXPECT_NE(refusal({"--far-memory", "900T"}).find("more than this machine has"), std::string::npos);
}

TEST_F(RunSettingsTest, TokenComesFromTheFilesFirstLine) {
  char path[] = "/tmp/farside-token-XXXXXX";
  close(mkstemp(path));
  EXPECT_NE(refusal({"--token-file", path}).find("empty first line"), std::string::npos);
  std::ofstream(path) << "secret\nmore\n";
  ::testing::internal::CaptureStderr();
  EXPECT_STREQ(settle(parse({"--token-file", path}))->options.token, "secret");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  chmod(path, 0644);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(settle(parse({"--token-file", path})).ok());
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("run chmod 600"), std::string::npos);
  unlink(path);
  EXPECT_NE(refusal({"--token-file", path}).find("cannot read the token file"), std::string::npos);
}

// A program of the run may call farside in another directory.
TEST_F(RunSettingsTest, ThePathOfTheTokenFileIsMadeAbsolute) {
  std::string folder = std::filesystem::temp_directory_path(), name = "farside-token-" + std::to_string(getpid());
  std::ofstream(folder + "/" + name) << "secret";
  std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  EXPECT_TRUE(settle(parse({"--token-file", name.c_str()})).ok());
  std::filesystem::current_path(before);
  EXPECT_STREQ(getenv("FARSIDE_TOKEN_FILE"), (folder + "/" + name).c_str());
  unlink((folder + "/" + name).c_str());
}

TEST_F(RunSettingsTest, StatisticsHaveOneForm) {
  EXPECT_EQ(settle(parse({"--stats=json:out.json"}))->stats_file, "out.json");
  EXPECT_NE(refusal({"--stats", "csv:x"}).find("json:FILE"), std::string::npos);
  EXPECT_NE(refusal({"--stats", "json:"}).find("json:FILE"), std::string::npos);
}

}  // namespace
}  // namespace farside::cli
