#include "command/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "base/log.h"

namespace farside {
namespace {

// "farside bench paging": the program and the commands that were given.
std::string given_command(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    name += " " + at->get_name();
  }
  return name;
}

bool is_number_from(const std::string& text, bool zero_too) {
  double number = 0;
  return CLI::detail::lexical_cast(text, number) && (number > 0 || (zero_too && number == 0));
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  log(LogLevel::kError, "{}; see {} --help", text, given_command(app));
  return kExitUsage;
}

int cannot_write(int error) {
  return fail(Status::error(error, "cannot write standard output: {}; check free space", strerror(error)));
}

// The exit status of a command that has printed its result: a failure if that did not arrive.
int with_output_written(int exit_status) {
  if (fflush(stdout) == 0 && !ferror(stdout)) return exit_status;
  int error = cannot_write(errno);
  return exit_status == 0 ? error : exit_status;
}

}  // namespace

int fail(const Status& status, int exit_status) {
  bool not_runnable = exit_status >= 126;  // as in shells
  log_failure(status, exit_status == kExitUsage ? kUsageError : not_runnable ? kProgramNotRunnable : kCommandFailed);
  return exit_status;
}

std::vector<std::string> take_program(std::vector<std::string>* arguments) {
  auto dashes = std::find(arguments->begin(), arguments->end(), "--");
  if (dashes == arguments->end()) return {};
  std::vector<std::string> program(dashes + 1, arguments->end());
  arguments->erase(dashes, arguments->end());
  return program;
}

Option& Option::value(const std::string& name) {
  option_->type_name(name);
  value_ = name;
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

Option& Option::separator(char between_values) {
  option_->delimiter(between_values);
  return *this;
}

Option& Option::positive() {
  option_->check(CLI::Validator(
      [](const std::string& text) {
        return is_number_from(text, false) ? "" : "'" + text + "' is not a number above 0";
      },
      "POSITIVE"));
  return *this;
}

Option& Option::non_negative() {
  option_->check(CLI::Validator(
      [](const std::string& text) { return is_number_from(text, true) ? "" : "'" + text + "' is not a number from 0"; },
      "NONNEGATIVE"));
  return *this;
}

Option& Option::range(int min, int max) {
  option_->check(CLI::Range(min, max));
  return *this;
}

Option& Option::range(unsigned min, unsigned max) {
  option_->check(CLI::Range(min, max));
  return *this;
}

Option& Option::range(double min, double max) {
  option_->check(CLI::Range(min, max));
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& choices) {
  option_->check(CLI::IsMember(choices));
  return this->choices(choices);
}

Option& Option::choices(const std::vector<std::string>& choices) {
  choices_ = choices;
  return *this;
}

Option& Option::existing_directory() {
  option_->check(CLI::ExistingDirectory);
  return *this;
}

Command::Command(const std::string& name, const std::string& help)
    : program_(std::make_unique<CLI::App>(help, name)), app_(program_.get()) {}

Command::Command(CLI::App* app) : app_(app) {}

Command::~Command() = default;

Command& Command::add_command(const std::string& name, const std::string& help) {
  CLI::App* added = app_->add_subcommand(name, help);
  added->footer("");  // not the examples of its parent
  return *commands_.emplace_back(new Command(added));
}

void Command::require_command() { app_->require_subcommand(1); }

void Command::set_footer(const std::string& text) { app_->footer(text); }

void Command::set_action(std::function<int()> action) {
  app_->callback([action = std::move(action)] { throw CLI::RuntimeError(action()); });
}

Option& Command::keep(CLI::Option* option) {
  return *options_.emplace(option, std::make_unique<Option>(option)).first->second;
}

Option& Command::add_option(const std::string& names, std::string* target, const std::string& help) {
  return keep(app_->add_option(names, *target, help));
}

Option& Command::add_option(const std::string& names, int* target, const std::string& help) {
  return keep(app_->add_option(names, *target, help));
}

Option& Command::add_option(const std::string& names, unsigned* target, const std::string& help) {
  return keep(app_->add_option(names, *target, help));
}

Option& Command::add_option(const std::string& names, uint64_t* target, const std::string& help) {
  return keep(app_->add_option(names, *target, help));
}

Option& Command::add_option(const std::string& names, double* target, const std::string& help) {
  return keep(app_->add_option(names, *target, help));
}

Option& Command::add_option(const std::string& names, std::vector<std::string>* target, const std::string& help) {
  return keep(app_->add_option(names, *target, help));
}

Option& Command::add_option(const std::string& names, std::vector<unsigned>* target, const std::string& help) {
  return keep(app_->add_option(names, *target, help));
}

Option& Command::add_option(const std::string& names, std::vector<double>* target, const std::string& help) {
  return keep(app_->add_option(names, *target, help));
}

Option& Command::add_option(const std::string& names, std::function<void(const std::string&)> take,
                            const std::string& help) {
  return keep(app_->add_option_function<std::string>(names, take, help));
}

Option& Command::add_flag(const std::string& names, bool* target, const std::string& help) {
  return keep(app_->add_flag(names, *target, help));
}

Option& Command::add_flag(const std::string& names, std::function<void()> take, const std::string& help) {
  return keep(app_->add_flag_callback(names, std::move(take), help));
}

void Command::add_version_flag(const std::string& names, const std::string& text) {
  app_->set_version_flag(names, text);
}

bool Command::given(const std::string& name) const { return app_->count(name) > 0; }

std::string Command::help() const { return app_->help(); }

OptionDescription Command::describe(const CLI::Option* option) const {
  OptionDescription d;
  for (const std::string& name : option->get_snames()) d.names.push_back("-" + name);
  for (const std::string& name : option->get_lnames()) d.names.push_back("--" + name);
  d.positional = option->get_positional();
  if (d.names.empty()) d.names.push_back(option->get_single_name());
  d.help = option->get_description();
  d.default_value = option->get_default_str();
  d.required = option->get_required();
  d.list = option->get_items_expected_max() > 1;
  auto ours = options_.find(option);
  if (ours == options_.end()) return d;
  d.value = ours->second->value_;
  d.choices = ours->second->choices_;
  return d;
}

CommandDescription Command::describe() const {
  CommandDescription d = {app_->get_name(), app_->get_description(), app_->get_footer(), {}, {}};
  for (const CLI::Option* option : std::as_const(*app_).get_options()) d.options.push_back(describe(option));
  for (const auto& command : commands_) d.commands.push_back(command->describe());
  return d;
}

int Command::run(std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::RuntimeError& done) {
    return with_output_written(done.get_exit_code());
  } catch (const CLI::Success& help) {
    return with_output_written(app_->exit(help));
  } catch (const CLI::ParseError& error) {
    return usage_error(*app_, error);
  } catch (const std::system_error& error) {  // thrown by fmt::print
    return cannot_write(error.code().value());
  }
  return 0;
}

}  // namespace farside
