package settings

import (
	"net/netip"
	"net/url"
	"strings"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Kubelet is the "kubelet" section of the configuration file.
type Kubelet struct {
	URL       string `yaml:"url" help:"URL of this machine's kubelet, such as https://10.0.0.1:10250, which says of which pod a container is; empty: nothing is asked"`
	TokenFile string `yaml:"token_file" help:"file with the token of a service account that may get nodes/pods; empty: none is sent"`
	CAFile    string `yaml:"ca_file" help:"CA certificates that verify the kubelet's, PEM; empty: those of the machine"`
	Verify    bool   `yaml:"verify" help:"verify the kubelet's certificate; false where kubelets sign their own"`
	CgroupDir string `yaml:"cgroup_dir" help:"where the machine's cgroups are mounted, among which the container of a sender is found that says only their inode; empty: not searched"`
}

// DefaultKubelet asks nothing. The file is where Kubernetes puts the token of a pod, and the directory where systemd
// mounts cgroups.
func DefaultKubelet() Kubelet {
	return Kubelet{TokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token", Verify: true,
		CgroupDir: "/sys/fs/cgroup"}
}

// Target returns the URL with brackets around an IPv6 address: a pod's variable has the address of its machine without
// them, and https://$(NODE_IP):10250 cannot add them.
func (c Kubelet) Target() string {
	scheme, rest, _ := strings.Cut(c.URL, "://")
	if i := strings.LastIndexByte(rest, ':'); i > 0 {
		if ip, err := netip.ParseAddr(rest[:i]); err == nil && ip.Is6() {
			return scheme + "://[" + rest[:i] + "]" + rest[i:]
		}
	}
	return c.URL
}

// Validate implements conf.Validator.
func (c Kubelet) Validate() (problems []conf.Problem) {
	if c.URL == "" {
		return nil
	}
	if u, err := url.Parse(c.Target()); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		problems = append(problems, conf.Problem{Key: "url", Text: "must be http://HOST:PORT or https://HOST:PORT, such as " +
			"https://10.0.0.1:10250"})
	}
	return problems
}
