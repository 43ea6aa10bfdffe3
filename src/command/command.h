// The command line of a program with subcommands: options, help, exit statuses, and errors in one line. Implemented
// with CLI11; only command.cc includes that library, which takes long to compile. Not thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace farside {

inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

// Prints "farside: error: <text>" and returns the exit status for it.
int fail(const Status& status, int exit_status = kExitFailure);

// Removes the program after "--" from the arguments and returns it: the option parser would split words such as
// "[a,b]".
std::vector<std::string> take_program(std::vector<std::string>* arguments);

// Descriptions of a command and its options, for shell completions and man pages.
struct OptionDescription {
  std::vector<std::string> names;    // "-p", "--pid"; for a positional argument its name without dashes
  std::string value;                 // the value's name in the help, as in "FILE"; "" for a flag
  std::string help, default_value;   // default_value: "" where the help shows none
  std::vector<std::string> choices;  // the allowed values; empty where any value is
  std::string range;                 // of a number, as in "1 to 64"; "" where it has none
  bool positional = false, required = false, list = false;
};

struct CommandDescription {
  std::string name, help, footer;
  std::vector<OptionDescription> options;
  std::vector<CommandDescription> commands;
};

// An option of a command: sets the constraints on its value and how the help shows it.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& value(const std::string& name);  // the value's name in the help
  Option& show_default();                  // the target's value at the time of this call
  Option& required();
  Option& hide();  // the help omits it; man pages and completions do not
  Option& separator(char between_values);

  Option& positive();
  Option& non_negative();
  Option& range(int min, int max);
  Option& range(unsigned min, unsigned max);
  Option& range(double min, double max);
  Option& one_of(const std::vector<std::string>& choices);
  Option& choices(const std::vector<std::string>& choices);  // for completions; not checked by the parser
  Option& existing_directory();

 private:
  friend class Command;
  Option& within(const CLI::Validator& range);

  CLI::Option* option_;
  std::string value_, range_;
  std::vector<std::string> choices_;
};

// A program, or one of its commands. Options write into their targets when the line is parsed: the targets must live
// until run() returns. References to commands and options stay valid as long as the program.
class Command {
 public:
  Command(const std::string& name, const std::string& help);  // a program
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  Command& add_command(const std::string& name, const std::string& help);
  void require_command();  // giving none is an error
  void set_footer(const std::string& text);
  // Runs when the command is given; its result is the exit status.
  void set_action(std::function<int()> action);

  // `names`: "--long", "-s,--long", or "positional".
  Option& add_option(const std::string& names, std::string* target, const std::string& help);
  Option& add_option(const std::string& names, int* target, const std::string& help);
  Option& add_option(const std::string& names, unsigned* target, const std::string& help);
  Option& add_option(const std::string& names, uint64_t* target, const std::string& help);
  Option& add_option(const std::string& names, double* target, const std::string& help);
  Option& add_option(const std::string& names, std::vector<std::string>* target, const std::string& help);
  Option& add_option(const std::string& names, std::vector<unsigned>* target, const std::string& help);
  Option& add_option(const std::string& names, std::vector<double>* target, const std::string& help);
  Option& add_option(const std::string& names, const std::function<void(const std::string&)>& take,
                     const std::string& help);
  // One that may be given several times: `take` is called for each.
  Option& add_repeated_option(const std::string& names, std::function<void(const std::string&)> take,
                              const std::string& help);
  // A flag whose name begins with "!" sets its target to false.
  Option& add_flag(const std::string& names, bool* target, const std::string& help);
  Option& add_flag(const std::string& names, std::function<void()> take, const std::string& help);
  void add_version_flag(const std::string& names, const std::string& text);
  // A flag that prints a text. The help does not list it: the help of another option names it.
  void add_help(const std::string& name, const std::string& help, const std::string& text);

  // The command executes the program that follows "--" on its command line.
  void expect_program() { expects_program_ = true; }
  // What the error of an unknown option recommends for `name`, besides the options that exist.
  void suggest(const std::string& name, const std::string& use) { suggestions_[name] = use; }

  bool given(const std::string& name) const;  // whether the parsed command line has this option
  std::string help() const;
  CommandDescription describe() const;

  // Parses the arguments (without the program's name) and runs the given command's action. Returns the exit status.
  int run(const std::vector<std::string>& arguments);

 private:
  explicit Command(CLI::App* app);
  Option& keep(CLI::Option* option);  // of which an empty value is refused
  Option& keep_unchecked(CLI::Option* option);
  OptionDescription describe(const CLI::Option* option) const;
  const Command& given_command() const;
  std::string path() const;
  Status unexpected(const std::vector<std::string>& line, const std::vector<std::string>& words) const;
  Status unknown_option(const std::string& word) const;
  Status unknown_command(const std::string& word) const;
  Status missing_dashes(const std::vector<std::string>& line, const std::string& program) const;

  std::unique_ptr<CLI::App> program_;  // of a program, not of its commands
  CLI::App* app_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::map<const CLI::Option*, std::unique_ptr<Option>> options_;
  std::map<std::string, std::string> suggestions_;
  bool expects_program_ = false;
};

}  // namespace farside
