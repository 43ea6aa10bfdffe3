#include "command/command.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "command/describe.h"

namespace farside {
namespace {

struct Values {
  std::string name, pool;
  std::vector<unsigned> shares = {10, 50};
  unsigned repetitions = 3;
  double seconds = 0;
  int pid = 0;
  bool json = false, zram = true, all = false;
};

// A program with a command of each kind of option; the status of its action is 7.
class CommandTest : public testing::Test {
 protected:
  CommandTest() {
    program_.require_command();
    program_.add_version_flag("--version", "test 1");
    measure_.add_option("pid", &values_.pid, "a process").value("PID").positive();
    measure_.add_option("-n,--name", &values_.name, "its name").value("NAME").one_of({"near", "far"});
    measure_.add_option("--shares", &values_.shares, "percent near")
        .value("LIST")
        .separator(',')
        .range(1u, 100u)
        .show_default();
    measure_.add_option("--repeat", &values_.repetitions, "repetitions").value("N").range(1u, 9u).show_default();
    measure_.add_flag("!--no-zram", &values_.zram, "no swap");
    measure_.add_flag("--all", &values_.all, "everything");
    measure_.add_option("--seconds", &values_.seconds, "time").value("S").non_negative();
    measure_.add_flag("--json", &values_.json, "print JSON");
    measure_.set_footer("Example:\n  test measure");
    measure_.set_action([] { return 7; });
    Command& status = program_.add_command("status", "Show a pool");
    status.add_option("--pool", &values_.pool, "address").value("HOST:PORT").required();
    status.set_action([] { return 8; });
  }

  // The exit status and the text on standard error.
  std::pair<int, std::string> run(std::vector<std::string> arguments) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    int status = program_.run(std::move(arguments));
    out_ = testing::internal::GetCapturedStdout();
    return {status, testing::internal::GetCapturedStderr()};
  }

  Command program_{"test", "A program."};
  Command& measure_ = program_.add_command("measure", "Measure a process");
  Values values_;
  std::string out_;
};

TEST(DescribeTest, TextIsEscaped) {
  CommandDescription program = {"a\"b", "c\\d\n", "", {}, {}};
  program.options = {{{"-x", "--long"}, "N", "help", "3", {"1", "3"}, "1 to 3", false, true, false}};
  program.commands = {{"nested", "", "", {}, {}}};
  EXPECT_EQ(to_json(program, "1", {{"V", "--long", "h"}}, {{"--long", "k", "K", "of k"}}),
            "{\"version\": \"1\", \"name\": \"a\\\"b\", \"help\": \"c\\\\d\\u000a\", \"footer\": \"\", \"options\": [\n"
            "{\"names\": [\"-x\", \"--long\"], \"value\": \"N\", \"help\": \"help\", \"default\": \"3\", "
            "\"choices\": [\"1\", \"3\"], \"range\": \"1 to 3\", \"positional\": false, \"required\": true, "
            "\"list\": false}], \"commands\": [\n"
            "{\"name\": \"nested\", \"help\": \"\", \"footer\": \"\", \"options\": [], \"commands\": []}], "
            "\"environment\": [\n{\"variable\": \"V\", \"flag\": \"--long\", \"help\": \"h\"}], \"keys\": [\n"
            "{\"option\": \"--long\", \"key\": \"k\", \"value\": \"K\", \"help\": \"of k\"}]}\n");
}

using Outcome = std::pair<int, std::string>;

TEST_F(CommandTest, OptionsAreStoredInTheirTargets) {
  EXPECT_EQ(run({"measure", "12", "-n", "far", "--shares", "5,20,100", "--no-zram", "--all", "--seconds=1.5"}),
            (Outcome{7, ""}));
  EXPECT_EQ(values_.pid, 12);
  EXPECT_EQ(values_.name, "far");
  EXPECT_EQ(values_.shares, (std::vector<unsigned>{5, 20, 100}));
  EXPECT_EQ(values_.repetitions, 3U);
  EXPECT_EQ(values_.seconds, 1.5);
  EXPECT_FALSE(values_.zram);
  EXPECT_TRUE(measure_.given("--name"));
  EXPECT_FALSE(measure_.given("--repeat"));
}

TEST_F(CommandTest, MistakesAreOneLineThatNamesTheCommand) {
  EXPECT_EQ(run({}), (Outcome{kExitUsage, "farside: error: A subcommand is required; see test --help [F001]\n"}));
  EXPECT_EQ(run({"measure", "--repeat", "10"}),
            (Outcome{kExitUsage,
                     "farside: error: --repeat: '10' is not valid; use 1 to 9; see test measure --help [F001]\n"}));
  EXPECT_EQ(
      run({"measure", "--name", "nowhere"}),
      (Outcome{kExitUsage,
               "farside: error: --name: 'nowhere' is not valid; use near or far; see test measure --help [F001]\n"}));
  EXPECT_EQ(run({"status"}),
            (Outcome{kExitUsage, "farside: error: --pool is required; see test status --help [F001]\n"}));
  for (const char* pid : {"0", "-1", "x"}) EXPECT_EQ(run({"measure", pid}).first, kExitUsage);
}

TEST_F(CommandTest, OutputThatCannotBeWrittenIsAFailure) {
  // In children, since standard output stays broken: what stdio buffers, and more than that.
  for (size_t bytes : {size_t{100}, size_t{1} << 20}) {
    Command& command = program_.add_command("print" + std::to_string(bytes), "Print");
    command.set_action([bytes] {
      fmt::print("{}", std::string(bytes, 'x'));
      return 0;
    });
    auto print_to_full = [&] {
      if (!freopen("/dev/full", "w", stdout)) _exit(99);
      _exit(program_.run({"print" + std::to_string(bytes)}));
    };
    EXPECT_EXIT(print_to_full(), testing::ExitedWithCode(kExitFailure),
                "^farside: error: cannot write standard output: No space left on device; check free space");
  }
}

TEST_F(CommandTest, WhatIsMisspeltNamesTheNearest) {
  measure_.suggest("--old", "--name far");
  for (auto [line, expected] :
       {std::pair{std::vector<std::string>{"measrue"}, "did you mean measure?"},
        {{"measure", "--nmae", "far"}, "--nmae is not an option of test measure; did you mean --name?"},
        {{"measure", "--odl=3"}, "did you mean --name far?"},
        {{"measure", "--unlike-all"}, "test measure --help lists them"},
        {{"status", "--pol", "x"}, "did you mean --pool?"},
        {{"status", "--pool", "x", "y"}, "takes no further word: 'y'"}}) {
    auto [status, error] = run(line);
    EXPECT_EQ(status, kExitUsage);
    EXPECT_NE(error.find(expected), std::string::npos) << error;
  }
}

TEST_F(CommandTest, TheProgramFollowsDashes) {
  Command& start = program_.add_command("start", "Run a program");
  start.add_flag("--json", &values_.json, "");
  start.expect_program();
  EXPECT_NE(run({"start", "--json", "sort", "-n", "x"})
                .second.find("put -- before the program: test start --json -- sort -n x"),
            std::string::npos);
}

TEST_F(CommandTest, EmptyValuesAreMistakes) {
  for (std::vector<std::string> line :
       {std::vector<std::string>{"status", "--pool", ""}, {"status", "--pool="}, {"measure", "--name=", "--json"}}) {
    auto [status, error] = run(line);
    EXPECT_EQ(status, kExitUsage);
    EXPECT_NE(error.find("the value is empty"), std::string::npos) << error;
  }
}

TEST_F(CommandTest, RepeatedOptionsAreTakenEachInTurn) {
  std::vector<std::string> taken;
  Command& tune = program_.add_command("tune", "");
  tune.add_repeated_option(
          "--set", [&](const std::string& text) { taken.push_back(text); }, "")
      .value("KEY");
  tune.add_help("--help-set", "Print the keys", "the keys\n");
  tune.set_action([] { return 0; });
  EXPECT_EQ(run({"tune", "--set", "a=1", "--set=b,c"}).first, 0);
  EXPECT_EQ(taken, (std::vector<std::string>{"a=1", "b,c"}));
  EXPECT_EQ(run({"tune", "--help-set"}).first, 0);
  EXPECT_EQ(out_, "the keys\n");
  EXPECT_EQ(run({"tune", "--help"}).first, 0);
  EXPECT_EQ(out_.find("--help"), std::string::npos) << out_;
}

TEST_F(CommandTest, HelpShowsDefaultsAndTheFooter) {
  EXPECT_EQ(run({"measure", "--help"}).first, 0);
  EXPECT_NE(out_.find("--repeat N:1 to 9=3"), std::string::npos) << out_;
  EXPECT_NE(out_.find("--name NAME:near or far"), std::string::npos) << out_;
  EXPECT_NE(out_.find("Example:\n  test measure"), std::string::npos) << out_;
  EXPECT_EQ(run({"--version"}).first, 0);
  EXPECT_EQ(out_, "test 1\n");
}

const OptionDescription& option(const CommandDescription& command, const std::string& name) {
  static const OptionDescription none;
  for (const OptionDescription& option : command.options) {
    for (const std::string& other : option.names) {
      if (other == name) return option;
    }
  }
  ADD_FAILURE() << "no option " << name;
  return none;
}

TEST_F(CommandTest, TheDescriptionHasEverythingInTheHelp) {
  CommandDescription program = program_.describe();
  EXPECT_EQ(program.name, "test");
  EXPECT_EQ(program.help, "A program.");
  EXPECT_EQ(option(program, "--version").value, "");
  ASSERT_EQ(program.commands.size(), 2U);
  const CommandDescription& measure = program.commands[0];
  EXPECT_EQ(measure.help, "Measure a process");
  EXPECT_EQ(measure.footer, "Example:\n  test measure");
  EXPECT_EQ(option(measure, "-h").names, (std::vector<std::string>{"-h", "--help"}));
  EXPECT_TRUE(option(measure, "pid").positional);
  const OptionDescription& name = option(measure, "-n");
  EXPECT_EQ(name.names, (std::vector<std::string>{"-n", "--name"}));
  EXPECT_EQ(name.value, "NAME");
  EXPECT_EQ(name.help, "its name");
  EXPECT_EQ(name.choices, (std::vector<std::string>{"near", "far"}));
  EXPECT_FALSE(name.list || name.required || name.positional);
  EXPECT_TRUE(option(measure, "--shares").list);
  EXPECT_EQ(option(measure, "--repeat").default_value, "3");
  EXPECT_EQ(option(measure, "--repeat").range, "1 to 9");
  EXPECT_EQ(option(measure, "--no-zram").value, "");
  EXPECT_TRUE(option(program.commands[1], "--pool").required);
}

}  // namespace
}  // namespace farside
