// SPDX-License-Identifier: Apache-2.0
//
// What the commands share: how they fail, the options that mean the same everywhere, and JSON on stdout.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "mxk/moe.h"

namespace mxk::cli {

using Json = nlohmann::ordered_json;

inline constexpr int kExitFailure = 1;  // bad file, unsupported machine, failed gate
inline constexpr int kExitUsage = 2;    // the command line asks for something that does not exist

// Thrown by commands, caught by main, which prints `message` (unless empty) and exits.
struct Failure {
  int exit_code;
  std::string message;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{kExitFailure, fmt::format(format, std::forward<Args>(args)...)};
}

template <class... Args>
[[noreturn]] void usage(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{kExitUsage, fmt::format(format, std::forward<Args>(args)...)};
}

// Throws unless ok. Names that do not exist are usage errors, everything else is a failure.
void require(const Status& status);

void warn(const std::string& message);  // one line on stderr
void print(const Json& json);           // on stdout

// Options. `--variant` and `--backend` take only names that exist; a name that cannot run here is a later failure.
CLI::Option* add_variant(CLI::App* app, std::string* variant);
CLI::Option* add_backend(CLI::App* app, std::string* backend);
CLI::Option* add_threads(CLI::App* app, int* threads);
CLI::Option* add_seed(CLI::App* app, uint64_t* seed);
CLI::Option* add_tokens(CLI::App* app, std::vector<int>* tokens);
std::vector<std::string> backend_names();

// 1, 2, 4... up to the variant's limits.
std::vector<int> default_tokens(const Variant& variant);

// The commands, one file each.
void add_variants_command(CLI::App& app);
void add_info_command(CLI::App& app);
void add_env_command(CLI::App& app);
void add_make_checkpoint_command(CLI::App& app);
void add_check_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_run_command(CLI::App& app);

}  // namespace mxk::cli
