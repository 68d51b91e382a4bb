#include "client/command/policy_verbs.h"

#include <sstream>

#include "client/exit_status.h"
#include "common/policy/act.h"

namespace agentmon {
namespace {

// Runs a verb that writes to streams, and hands on what it wrote.
template <typename Verb>
int Local(const VerbContext& context, const Verb& verb) {
  std::ostringstream out, err;
  const int status = verb(policy_cli::ContextOfProcess(), out, err);
  context.output->Write(out.str());
  std::string problems = err.str();
  if (!problems.empty() && problems.back() == '\n') problems.pop_back();
  if (!problems.empty()) context.FailLines(status, problems);
  return status;
}

CLI::App* AddVerb(CLI::App& parent, Cli& cli, const std::string& name, const std::string& description,
                  std::function<int()> action) {
  CLI::App* verb = parent.add_subcommand(name, description);
  cli.verbs.emplace_back(verb, std::move(action));
  return verb;
}

void AddFiles(CLI::App* verb, std::vector<std::string>& files, const std::string& what) {
  verb->add_option("FILE", files, what)->type_name("FILE")->required();
}

void AddExplain(CLI::App& policy, Cli& cli) {
  CLI::App* explain =
      AddVerb(policy, cli, "explain", "Show what a policy says of an act, layer by layer", [&cli] {
        if (!cli.policy.session.empty()) {
          if (!cli.policy.policies.empty())
            return cli.context.Fail(kUsage, "policy explain: --session and --policy exclude each other");
          return PolicyExplainSession(cli.context, cli.policy);
        }
        return Local(cli.context, [&](const auto& context, auto& out, auto& err) {
          cli.policy.explain.policies = cli.policy.policies;
          return policy_cli::Explain(context, cli.policy.explain, out, err);
        });
      });
  explain
      ->add_option("--policy", cli.policy.policies, "Name or file; the first is the base, others tighten it")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->type_name("NAME|FILE");
  explain->add_option("--floor", cli.policy.explain.floor, "File to take as the floor")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->type_name("FILE");
  explain->add_option("--session", cli.policy.session, "Ask by the policy of this running session")
      ->type_name("ID");
  explain->add_option("--depth", cli.policy.explain.depth, "Programs between the agent and this command")
      ->type_name("N");
  explain
      ->add_option("ACT", cli.policy.explain.verb,
                   "exec, open, write, delete, connect, query, unix, signal, env, ...")
      ->type_name("ACT")
      ->required();
  explain
      ->add_option("SUBJECT", cli.policy.explain.subject, "What it is done to: a command, path, address, ...")
      ->type_name("SUBJECT")
      ->required();
  explain->footer(
      "Exit status 1 when the act is stopped.\n\n"
      "Examples:\n"
      "  agentmon policy explain exec 'git push --force'\n"
      "  agentmon policy explain --policy strict connect example.com:443\n"
      "  agentmon policy explain --session fix-ci write ~/.bashrc");
}

void AddFileVerbs(CLI::App& policy, Cli& cli) {
  CLI::App* show = AddVerb(policy, cli, "show", "Print a policy file", [&cli] {
    return Local(cli.context, [&](const auto& context, auto& out, auto& err) {
      return policy_cli::Show(context, cli.policy.files.front(), out, err);
    });
  });
  show->add_option("NAME", cli.policy.files, "Name of an installed policy, or a file")
      ->type_name("NAME|FILE")
      ->required()
      ->expected(1);
  AddFiles(AddVerb(policy, cli, "validate", "Check policy files: every mistake with its place",
                   [&cli] {
                     return Local(cli.context, [&](const auto& context, auto& out, auto& err) {
                       return policy_cli::Validate(context, cli.policy.files, out, err);
                     });
                   }),
           cli.policy.files, "Policy files, or names of installed ones");
  AddFiles(AddVerb(policy, cli, "lint", "Find rules that do not do what they look like",
                   [&cli] {
                     return Local(cli.context, [&](const auto& context, auto& out, auto& err) {
                       return policy_cli::Lint(context, cli.policy.lint, out, err);
                     });
                   }),
           cli.policy.lint.files, "Policy files, or names of installed ones");
  CLI::App* test = AddVerb(policy, cli, "test", "Run tables of acts and expected decisions", [&cli] {
    return Local(cli.context, [&](const auto& context, auto& out, auto& err) {
      return policy_cli::Test(context, cli.policy.test, out, err);
    });
  });
  AddFiles(test, cli.policy.test.tables, "Table files");
  test->add_flag("--junit", cli.policy.test.junit, "Print JUnit XML");
  test->add_flag("--verbose,-v", cli.policy.test.verbose, "Rows that passed too");
  CLI::App* diff = AddVerb(policy, cli, "diff", "Show which rules differ between two policies", [&cli] {
    if (cli.policy.files.size() != 2) return cli.context.Fail(kUsage, "policy diff: two policies are needed");
    return Local(cli.context, [&](const auto& context, auto& out, auto& err) {
      return policy_cli::Diff(context, cli.policy.files[0], cli.policy.files[1], out, err);
    });
  });
  diff->add_option("POLICY", cli.policy.files, "Two names or files")
      ->type_name("NAME|FILE")
      ->required()
      ->expected(2);
  CLI::App* init = AddVerb(policy, cli, "init", "Write a commented policy file to start from", [&cli] {
    return Local(cli.context, [&](const auto&, auto& out, auto& err) {
      return policy_cli::Init(cli.policy.files.empty() ? "-" : cli.policy.files.front(), out, err);
    });
  });
  init->add_option("FILE", cli.policy.files, "File to write; default standard output")
      ->type_name("FILE")
      ->expected(1);
  AddVerb(policy, cli, "schema", "Print the JSON Schema of policy files, for editors", [&cli] {
    return Local(cli.context, [](const auto&, auto& out, auto&) { return policy_cli::Schema(out); });
  });
}

}  // namespace

void AddPolicy(CLI::App& app, Cli& cli) {
  CLI::App* policy = app.add_subcommand("policy", "List, check, try and explain policies");
  policy->require_subcommand(1);
  policy->footer(
      "docs/policy.md is the reference.\n\n"
      "Examples:\n"
      "  agentmon policy init my.yaml\n"
      "  agentmon policy validate my.yaml\n"
      "  agentmon policy explain --policy my.yaml exec 'rm -rf /'");
  AddVerb(*policy, cli, "list", "List the policies that the daemon has",
          [&cli] { return PolicyList(cli.context); });
  CLI::App* get = AddVerb(*policy, cli, "get", "Show the layers and rules of a running session",
                          [&cli] { return PolicyGet(cli.context, cli.policy); });
  get->add_option("ID", cli.policy.session, "Session; default the newest")->type_name("ID");
  CLI::App* set = AddVerb(*policy, cli, "set", "The same as agentmon session set-policy",
                          [&cli] { return SessionSetPolicy(cli.context, cli.session); });
  AddSetPolicyOptions(set, cli);
  AddFileVerbs(*policy, cli);
  AddExplain(*policy, cli);
  AddVerb(*policy, cli, "setup", "Make a first policy of your own",
          [&cli] { return PolicySetup(cli.context); });
  CLI::App* reload = AddVerb(*policy, cli, "reload", "Have the daemon read its policy files again",
                             [&cli] { return PolicyReload(cli.context); });
  reload->footer("Exit status 1 when a file is broken; then nothing changes. Administrators only.");
}

void AddSetPolicyOptions(CLI::App* verb, Cli& cli) {
  verb->add_option("ID", cli.session.id, "Session")->type_name("ID")->required();
  AddPolicyOption(verb, cli.session.policies);
  verb->footer(
      "The running session is held to the new policy from now on; the floor stays. What could take effect "
      "only "
      "when a program starts is refused, and then nothing is changed.");
}

void AddPolicyOption(CLI::App* verb, std::vector<std::string>& policies) {
  verb->add_option("--policy", policies,
                   "Name of a policy, or a file; may be given again, to tighten it. Default: the daemon's")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->type_name("NAME|FILE");
}

}  // namespace agentmon
