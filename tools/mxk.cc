// SPDX-License-Identifier: Apache-2.0
//
// The mxk command line.
#include "mxk/mxk.h"

#include <charconv>
#include <cstdio>
#include <exception>
#include <new>

#include "cli.h"

namespace mxk::cli {

void require(const Status& status) {
  if (status.ok()) return;
  const bool unknown_name = status.code == Code::backend_unknown || status.code == Code::unsupported_variant;
  throw Failure{unknown_name ? kExitUsage : kExitFailure, status.message};
}

namespace {
// Never throws: a closed stderr must not turn a result into a crash.
void say(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }
}  // namespace

void warn(const std::string& message) { say("mxk: warning: " + message); }

// Paths need not be UTF-8: replace what is not instead of throwing.
void print(const Json& json) { fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace)); }

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const Backend* b : backends()) names.emplace_back(b->name);
  return names;
}

CLI::Option* add_variant(CLI::App* app, std::string* variant) {
  std::vector<std::string> names;
  for (const Variant& v : variants()) names.emplace_back(v.name);
  return app->add_option("--variant", *variant, "Row of `mxk variants`")->required()->check(CLI::IsMember(names));
}

CLI::Option* add_backend(CLI::App* app, std::string* backend) {
  return app->add_option("--backend", *backend, "Backend; default: MXK_BACKEND, else the first that runs here")
      ->check(CLI::IsMember(backend_names()));
}

CLI::Option* add_threads(CLI::App* app, int* threads) {
  return app->add_option("--threads", *threads, "Threads; 0: one per CPU this process may use")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

// Checked here because CLI11 wraps negative numbers and cuts large ones off.
CLI::Option* add_seed(CLI::App* app, uint64_t* seed) {
  const auto check = [](const std::string& text) {
    uint64_t value;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    return code == std::errc() && end == text.data() + text.size() ? "" : text + " is not an integer from 0 to 2^64-1";
  };
  return app->add_option("--seed", *seed, "Seed; same seed, same bytes")->check(check)->capture_default_str();
}

CLI::Option* add_tokens(CLI::App* app, std::vector<int>* tokens) {
  return app
      ->add_option("--tokens", *tokens, "Token counts, e.g. 1,2,4; default: powers of two up to the variant's limit")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 4096));
}

std::vector<int> default_tokens(const Variant& variant) {
  std::vector<int> tokens;
  for (int T = 1; T <= variant.limits.tokens && T * variant.serving.top_k <= variant.limits.routes; T *= 2)
    tokens.push_back(T);
  return tokens;
}

}  // namespace mxk::cli

int main(int argc, char** argv) {
  using namespace mxk::cli;
  CLI::App app("Routed MXFP4 mixture-of-experts layers straight from their packed weights", "mxk");
  app.set_version_flag("--version", fmt::format("mxk {}", mxk_version()));
  app.require_subcommand(1);
  app.footer(
      "`mxk COMMAND --help` shows the options of a command and an example.\n"
      "Exit status: 0 done, 1 failed, 2 wrong usage.");
  add_variants_command(app);
  add_info_command(app);
  add_env_command(app);
  add_make_checkpoint_command(app);
  add_check_command(app);
  add_bench_command(app);
  add_run_command(app);
  try {
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0) fail("cannot write to standard output");
    return 0;
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kExitUsage;
  } catch (const Failure& e) {
    std::fflush(stdout);
    if (!e.message.empty()) say("mxk: " + e.message);
    return e.exit_code;
  } catch (const std::bad_alloc&) {
    std::fputs("mxk: out of memory\n", stderr);
  } catch (const std::exception& e) {
    say(std::string("mxk: ") + e.what());
  }
  return kExitFailure;
}
