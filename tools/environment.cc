// SPDX-License-Identifier: Apache-2.0
#include "environment.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "mxk/mxk.h"

extern char** environ;

namespace mxk::cli {
namespace {

const char* const kVariables[] = {"MXK_BACKEND"};

std::vector<std::pair<std::string, std::string>> mxk_variables() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** e = environ; *e; ++e) {
    const char* const variable = *e;
    const char* equals = std::strchr(variable, '=');
    if (equals && std::strncmp(variable, "MXK_", 4) == 0) found.emplace_back(std::string(variable, equals), equals + 1);
  }
  std::sort(found.begin(), found.end());
  return found;
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t up = row[j + 1];
      row[j + 1] = std::min({up + 1, row[j] + 1, diagonal + (a[i] != b[j])});
      diagonal = up;
    }
  }
  return row[b.size()];
}

void check_variables(std::vector<std::string>* problems) {
  for (const auto& [name, value] : mxk_variables()) {
    if (std::find(std::begin(kVariables), std::end(kVariables), name) != std::end(kVariables)) continue;
    std::string text = fmt::format("{} is set but means nothing to mxk", name);
    for (const char* known : kVariables)
      if (edit_distance(name, known) <= 4) text += fmt::format("; did you mean {}?", known);
    problems->push_back(text);
  }
}

}  // namespace

BackendChoice choose_backend() {
  BackendChoice c;
  const char* env = std::getenv("MXK_BACKEND");
  c.forced = env && *env;
  for (const Backend* b : backends()) {
    if (!b->automatic || !b->supported().ok()) continue;
    c.best = b;
    break;
  }
  Selection selection;
  if (Status s = select_backend("", &selection); s.ok())
    c.chosen = selection.backend;
  else
    c.error = s.message;
  return c;
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string build_type() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "sanitized";
#elif defined(__OPTIMIZE__)
  return "optimized";
#else
  return "not optimized";
#endif
}

Json build_json() { return {{"version", mxk_version()}, {"compiler", compiler()}, {"build_type", build_type()}}; }

Json backends_json(const BackendChoice& choice) {
  Json list = Json::array();
  for (const Backend* b : backends()) {
    const Status s = b->supported();
    list.push_back({{"name", b->name},
                    {"description", b->description},
                    {"automatic", b->automatic},
                    {"supported", s.ok()},
                    {"reason", s.message},
                    {"chosen", b == choice.chosen}});
  }
  return list;
}

std::vector<std::string> find_problems(const Machine& m, const BackendChoice& c) {
  std::vector<std::string> problems;
  if (!c.chosen) problems.push_back(c.error);
  if (c.chosen && c.forced && c.chosen != c.best && c.best)
    problems.push_back(fmt::format(
        "MXK_BACKEND forces '{}'; unset it to get '{}', the first choice here{}", c.chosen->name, c.best->name,
        c.chosen->automatic ? "" : fmt::format(" ('{}' is not made for speed)", c.chosen->name)));
  if (c.chosen && !c.forced && c.chosen == c.best && !std::strcmp(c.chosen->name, "generic"))
    problems.push_back("no vector backend runs on this CPU: 'generic' is portable code and slower");
  if (build_type() != "optimized")
    problems.push_back(fmt::format("this build is {}: timings mean nothing", build_type()));
  if (m.cpus_usable < m.cpus_online)
    problems.push_back(
        fmt::format("{} of {} CPUs are usable: the affinity mask (taskset, cpuset, container) hides the rest",
                    m.cpus_usable, m.cpus_online));
  if (m.cpu_quota > 0 && m.cpu_quota < m.cpus_usable)
    problems.push_back(
        fmt::format("the control group grants {:.2f} CPUs but one thread is started on each of {} (throttled {} "
                    "times so far): raise the quota or use fewer threads",
                    m.cpu_quota, m.cpus_usable, m.throttled));
  if (m.load > m.cpus_online + 0.5)
    problems.push_back(
        fmt::format("load average {:.1f} on {} CPUs: other work competes for them", m.load, m.cpus_online));
  if (m.huge_pages == "never")
    problems.push_back(
        "transparent huge pages are off: what mxk allocates (bench's weights, scratch) lies in 4 KiB pages and reads "
        "slower; "
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  if (m.governor == "powersave" || m.governor == "conservative")
    problems.push_back(
        fmt::format("CPU frequency governor is '{}'; 'performance' or 'schedutil' clocks up faster", m.governor));
  if (m.memory_available < m.memory_total / 16)
    problems.push_back(fmt::format("{} of {} memory available: mapped weights may be dropped and read from disk again",
                                   binary_text(m.memory_available), binary_text(m.memory_total)));
  check_variables(&problems);
  return problems;
}

void warn_unknown_variables() {
  std::vector<std::string> problems;
  check_variables(&problems);
  for (const std::string& p : problems) warn(p);
}

Json environment_json() {
  const Machine machine = read_machine();
  const BackendChoice choice = choose_backend();
  Json variables = Json::object();
  for (const auto& [name, value] : mxk_variables()) variables[name] = value;
  Json j = build_json();
  j["machine"] = to_json(machine);
  j["variables"] = variables;
  j["backend"] = choice.chosen ? Json(choice.chosen->name) : Json(nullptr);
  j["backends"] = backends_json(choice);
  j["warnings"] = find_problems(machine, choice);
  return j;
}

void add_env_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("env", "Print everything a bug report needs, as JSON");
  sub->add_flag("--json")->description("Print JSON, as always");
  sub->footer("Example:\n  mxk env --json > env.json");
  sub->callback([] { print(environment_json()); });
}

}  // namespace mxk::cli
