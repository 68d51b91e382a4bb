#include "common/policy/env_names.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace agentmon::policy {
namespace {

constexpr absl::string_view kNames[] = {
    // cloud
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID", "AZURE_CLIENT_CERTIFICATE_PATH",
    "ARM_CLIENT_SECRET", "ARM_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CREDENTIALS",
    "CLOUDSDK_AUTH_ACCESS_TOKEN", "GCP_SA_KEY", "DIGITALOCEAN_ACCESS_TOKEN", "HCLOUD_TOKEN", "LINODE_TOKEN",
    "CLOUDFLARE_API_TOKEN", "CLOUDFLARE_API_KEY",
    // hosts, registries, tools
    "GITHUB_TOKEN", "GH_TOKEN", "GH_ENTERPRISE_TOKEN", "GITLAB_TOKEN", "CI_JOB_TOKEN", "BITBUCKET_TOKEN",
    "NPM_TOKEN", "NODE_AUTH_TOKEN", "PYPI_TOKEN", "TWINE_PASSWORD", "CARGO_REGISTRY_TOKEN", "DOCKER_HOST",
    "DOCKER_AUTH_CONFIG", "KUBECONFIG", "VAULT_TOKEN", "CONSUL_HTTP_TOKEN", "NOMAD_TOKEN", "SLACK_TOKEN",
    "SLACK_BOT_TOKEN", "STRIPE_API_KEY", "SENTRY_AUTH_TOKEN", "DATABASE_URL", "PGPASSWORD", "MYSQL_PWD",
    "REDIS_URL", "SSH_AUTH_SOCK", "GPG_AGENT_INFO",
    // what runs code or redirects programs
    "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "CDPATH", "GLOBIGNORE", "PROMPT_COMMAND", "GIT_ASKPASS",
    "SSH_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "PYTHONSTARTUP",
    "PYTHONPATH", "PYTHONHOME", "PYTHONINSPECT", "PYTHONBREAKPOINT", "RUBYOPT", "RUBYLIB", "PERL5OPT",
    "PERL5LIB", "PERL5DB", "NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "JAVA_TOOL_OPTIONS",
    "GCONV_PATH"};

constexpr absl::string_view kOwn[] = {"AGENTMON_SESSION", "AGENTMON_SOCKET"};

constexpr absl::string_view kLoader = "LD_*";

}  // namespace

const std::vector<absl::string_view>& SecretEnvPatterns() {
  static const auto& patterns = *new std::vector<absl::string_view>([] {
    std::vector<absl::string_view> all(std::begin(kNames), std::end(kNames));
    all.push_back(kLoader);
    return all;
  }());
  return patterns;
}

absl::Span<const absl::string_view> OwnEnvNames() { return kOwn; }

bool IsSecretEnvName(absl::string_view name) {
  return absl::StartsWith(name, kLoader.substr(0, kLoader.size() - 1)) ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool IsOwnEnvName(absl::string_view name) {
  return std::find(std::begin(kOwn), std::end(kOwn), name) != std::end(kOwn);
}

}  // namespace agentmon::policy
