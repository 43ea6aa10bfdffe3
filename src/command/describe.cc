#include "command/describe.h"

#include <fmt/format.h>

#include <cstdio>

namespace farside {
namespace {

std::string quote(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) < ' ') quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else quoted += c;
  }
  return quoted + '"';
}

// "[a, b]" of what `one` returns for each value.
template <typename T, typename One>
std::string array(const std::vector<T>& values, One one) {
  std::string text = "[";
  for (const T& value : values) text += (text.size() > 1 ? ", " : "") + one(value);
  return text + "]";
}

std::string option_json(const OptionDescription& option) {
  return fmt::format(R"({{"names": {}, "value": {}, "help": {}, "default": {}, "choices": {}, )"
                     R"("range": {}, "positional": {}, "required": {}, "list": {}}})",
                     array(option.names, quote), quote(option.value), quote(option.help), quote(option.default_value),
                     array(option.choices, quote), quote(option.range), option.positional, option.required,
                     option.list);
}

std::string command_members(const CommandDescription& command) {
  auto nested = [](const CommandDescription& c) { return "\n{" + command_members(c) + "}"; };
  auto option = [](const OptionDescription& o) { return "\n" + option_json(o); };
  return fmt::format(R"("name": {}, "help": {}, "footer": {}, "options": {}, "commands": {})", quote(command.name),
                     quote(command.help), quote(command.footer), array(command.options, option),
                     array(command.commands, nested));
}

std::string variable_json(const VariableDescription& variable) {
  return fmt::format("\n{{\"variable\": {}, \"flag\": {}, \"help\": {}}}", quote(variable.name), quote(variable.flag),
                     quote(variable.help));
}

std::string key_json(const KeyDescription& key) {
  return fmt::format("\n{{\"option\": {}, \"key\": {}, \"value\": {}, \"help\": {}}}", quote(key.option),
                     quote(key.key), quote(key.value), quote(key.help));
}

}  // namespace

std::string to_json(const CommandDescription& program, const std::string& version,
                    const std::vector<VariableDescription>& variables, const std::vector<KeyDescription>& keys) {
  return fmt::format("{{\"version\": {}, {}, \"environment\": {}, \"keys\": {}}}\n", quote(version),
                     command_members(program), array(variables, variable_json), array(keys, key_json));
}

int run_tool(Command& tool, std::vector<std::string> arguments) {
  if (!asks_for_description(arguments)) return tool.run(std::move(arguments));
  fputs(to_json(tool.describe()).c_str(), stdout);
  return 0;
}

}  // namespace farside
