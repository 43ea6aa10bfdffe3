#include "cli/tls_options.h"

namespace farside::cli {

void add_tls_options(Command& command, TlsArguments* arguments) {
  command
      .add_option("--tls-ca", &arguments->files.authorities,
                  "PEM file of the authorities that are trusted (default: the system's)")
      .value("FILE");
  command.add_option("--tls-cert", &arguments->files.certificate, "PEM file of this side's certificate").value("FILE");
  command.add_option("--tls-key", &arguments->files.key, "PEM file of its private key").value("FILE");
  command
      .add_option("--tls-name", &arguments->name,
                  "name in the controller's certificate (default: the host in its address)")
      .value("NAME");
  command.add_flag("--require-tls", &arguments->required, "refuse connections to other hosts that are not encrypted");
}

Status ControllerAddress::open(const std::string& text, const TlsArguments& arguments) {
  std::string address = text.find("://") == text.npos ? "pool://" + text : text;
  std::string socket;
  if (address.starts_with("pool+tls://")) {
    auto directory = PrivateDirectory::create();
    if (!directory.ok()) return directory.status();
    directory_ = std::move(*directory);
    auto relay = PrivateRelay::start(*directory_, arguments);
    if (!relay.ok()) return relay.status();
    relay_ = std::move(*relay);
    socket = relay_->socket();
  }
  auto parsed = remote::parse_address(address.c_str(), {.tls = socket.c_str()});
  if (!parsed.ok()) return parsed.status();
  if (!parsed->is_pool)
    return Status::error(EINVAL, "{} is not the address of a controller; write HOST:PORT or pool+tls://HOST:PORT",
                         text);
  address_ = *parsed;
  return remote::check_plain_text(address_,
                                  arguments.required ? remote::PlainText::kRefused : remote::PlainText::kReported);
}

}  // namespace farside::cli
