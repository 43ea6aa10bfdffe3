#include "command/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "base/log.h"
#include "base/nearest_name.h"

namespace farside {
namespace {

constexpr const char* kEmptyValue = "the value is empty; give one, or leave the option out";

// Rejects what `accepts` does not, and names what it does.
CLI::Validator validator(const std::string& accepted, std::function<bool(const std::string&)> accepts) {
  return CLI::Validator(
      [accepted, accepts = std::move(accepts)](const std::string& text) {
        return accepts(text) ? "" : fmt::format("'{}' is not valid; use {}", text, accepted);
      },
      accepted);
}

template <typename Number>
CLI::Validator in_range(Number min, Number max) {
  return validator(fmt::format("{} to {}", min, max), [min, max](const std::string& text) {
    Number number{};
    return !text.starts_with(' ') && CLI::detail::lexical_cast(text, number) && number >= min && number <= max;
  });
}

// "text, json or html".
std::string either(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); i++) text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

bool is_number_from(const std::string& text, bool zero_too) {
  double number = 0;
  return CLI::detail::lexical_cast(text, number) && (number > 0 || (zero_too && number == 0));
}

// "--far=" has a value, the empty one, which CLI11 does not see.
std::vector<std::string> with_empty_values(const std::vector<std::string>& line) {
  std::vector<std::string> words;
  for (const std::string& word : line) {
    bool is_empty_value = word.starts_with("--") && word.find('=') == word.size() - 1;
    words.push_back(is_empty_value ? word.substr(0, word.size() - 1) : word);
    if (is_empty_value) words.emplace_back();
  }
  return words;
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

Option& Option::hide() {
  option_->group("");
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::separator(char between_values) {
  option_->delimiter(between_values);
  return *this;
}

Option& Option::within(const CLI::Validator& range) {
  option_->check(range);
  range_ = range.get_description();
  return *this;
}

Option& Option::positive() {
  return within(validator("a number above 0", [](const std::string& text) { return is_number_from(text, false); }));
}

Option& Option::non_negative() {
  return within(validator("a number from 0", [](const std::string& text) { return is_number_from(text, true); }));
}

Option& Option::range(int min, int max) { return within(in_range(min, max)); }

Option& Option::range(unsigned min, unsigned max) { return within(in_range(min, max)); }

Option& Option::range(double min, double max) { return within(in_range(min, max)); }

Option& Option::one_of(const std::vector<std::string>& choices) {
  option_->check(validator(either(choices), [choices](const std::string& text) {
    return std::ranges::find(choices, text) != choices.end();
  }));
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

Command::Command(const std::string& name, const std::string& help) : Command(new CLI::App(help, name)) {
  program_.reset(app_);
}

// Help flags are in no list of options: who reads it has found them. CLI11 lets no command inherit a hidden one.
Command::Command(CLI::App* app) : app_(app) {
  app_->set_help_flag("-h,--help", "Print this help message and exit")->group("");
}

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
  option->check(CLI::Validator([](const std::string& text) { return text.empty() ? kEmptyValue : ""; }, ""));
  return keep_unchecked(option);
}

Option& Command::keep_unchecked(CLI::Option* option) {
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

Option& Command::add_option(const std::string& names, const std::function<void(const std::string&)>& take,
                            const std::string& help) {
  return keep_unchecked(app_->add_option_function<std::string>(names, take, help));
}

Option& Command::add_repeated_option(const std::string& names, std::function<void(const std::string&)> take,
                                     const std::string& help) {
  auto take_all = [take = std::move(take)](const std::vector<std::string>& values) {
    for (const std::string& value : values) take(value);
  };
  return keep_unchecked(
      app_->add_option_function<std::vector<std::string>>(names, take_all, help)->allow_extra_args(false));
}

Option& Command::add_flag(const std::string& names, bool* target, const std::string& help) {
  return keep_unchecked(app_->add_flag(names, *target, help));
}

Option& Command::add_flag(const std::string& names, std::function<void()> take, const std::string& help) {
  return keep_unchecked(app_->add_flag_callback(names, std::move(take), help));
}

void Command::add_version_flag(const std::string& names, const std::string& text) {
  app_->set_version_flag(names, text);
}

void Command::add_help(const std::string& name, const std::string& help, const std::string& text) {
  auto print = [text] {
    fputs(text.c_str(), stdout);
    throw CLI::RuntimeError(0);
  };
  app_->add_flag_callback(name, print, help)->group("")->trigger_on_parse();
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
  d.range = ours->second->range_;
  return d;
}

CommandDescription Command::describe() const {
  CommandDescription d = {app_->get_name(), app_->get_description(), app_->get_footer(), {}, {}};
  for (const CLI::Option* option : std::as_const(*app_).get_options()) d.options.push_back(describe(option));
  for (const auto& command : commands_) d.commands.push_back(command->describe());
  return d;
}

const Command& Command::given_command() const {
  auto given = std::ranges::find_if(commands_, [](const auto& command) { return command->app_->parsed(); });
  return given == commands_.end() ? *this : (*given)->given_command();
}

// "farside bench paging".
std::string Command::path() const {
  const CLI::App* parent = app_->get_parent();
  std::string name = app_->get_name();
  for (; parent; parent = parent->get_parent()) name.insert(0, parent->get_name() + " ");
  return name;
}

Status Command::unknown_option(const std::string& word) const {
  std::string name = word.substr(0, word.find('='));
  std::vector<std::string_view> known;
  OptionDescription all;
  for (const CLI::Option* option : std::as_const(*app_).get_options()) {
    for (const std::string& long_name : option->get_lnames()) all.names.push_back("--" + long_name);
  }
  for (const auto& [suggested, use] : suggestions_) all.names.push_back(suggested);
  known.assign(all.names.begin(), all.names.end());
  std::string meant(nearest_name(name, known));
  if (meant.empty())
    return Status::error(EINVAL, "{} is not an option of {}; {} --help lists them", name, path(), path());
  auto use = suggestions_.find(meant);
  return Status::error(EINVAL, "{} is not an option of {}; did you mean {}?", name, path(),
                       use == suggestions_.end() ? meant : use->second);
}

Status Command::unknown_command(const std::string& word) const {
  std::vector<std::string> names;
  for (const auto& command : commands_) names.push_back(command->app_->get_name());
  std::string_view meant = nearest_name(word, std::vector<std::string_view>(names.begin(), names.end()));
  if (!meant.empty()) return Status::error(EINVAL, "{} has no command {}; did you mean {}?", path(), word, meant);
  return Status::error(EINVAL, "{} has no command {}; {} --help lists them", path(), word, path());
}

Status Command::missing_dashes(const std::vector<std::string>& line, const std::string& program) const {
  std::string correct = app_->get_parent() ? app_->get_parent()->get_name() : app_->get_name();
  bool is_before = true;
  for (const std::string& word : line) {
    if (is_before && word == program) correct += " --";
    is_before = is_before && word != program;
    correct += " " + word;
  }
  return Status::error(EINVAL, "put -- before the program: {}", correct);
}

Status Command::unexpected(const std::vector<std::string>& line, const std::vector<std::string>& words) const {
  const std::string& word = words.front();
  if (word.starts_with('-') && word.size() > 1) return unknown_option(word);
  if (!commands_.empty()) return unknown_command(word);
  if (expects_program_) return missing_dashes(line, word);
  return Status::error(EINVAL, "{} takes no further word: '{}'; see {} --help", path(), word, path());
}

int Command::run(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = with_empty_values(arguments);
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
  try {
    app_->parse(std::move(words));
  } catch (const CLI::RuntimeError& done) {
    return with_output_written(done.get_exit_code());
  } catch (const CLI::Success& help) {
    return with_output_written(app_->exit(help));
  } catch (const CLI::ParseError& error) {
    const Command& given = given_command();
    std::vector<std::string> left = app_->remaining(true);
    // The value of a misspelt option may have been taken for another word, and be refused as that.
    bool is_unexpected =
        !left.empty() && (left.front().starts_with('-') || dynamic_cast<const CLI::ExtrasError*>(&error) ||
                          dynamic_cast<const CLI::RequiredError*>(&error));
    if (is_unexpected) return fail(given.unexpected(arguments, left), kExitUsage);
    return fail(Status::error(EINVAL, "{}; see {} --help", error.what(), given.path()), kExitUsage);
  } catch (const std::system_error& error) {  // thrown by fmt::print
    return cannot_write(error.code().value());
  }
  return 0;
}

}  // namespace farside
