package settings

import (
	"net/url"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Kubelet is the "kubelet" section of the configuration file.
type Kubelet struct {
	URL       string `yaml:"url" help:"URL of this machine's kubelet, such as https://10.0.0.1:10250, which says of which pod a container is; empty: nothing is asked"`
	TokenFile string `yaml:"token_file" help:"file with the token of a service account that may get nodes/pods; empty: none is sent"`
	CAFile    string `yaml:"ca_file" help:"CA certificates that verify the kubelet's, PEM; empty: those of the machine"`
	Verify    bool   `yaml:"verify" help:"verify the kubelet's certificate; false where kubelets sign their own"`
}

// DefaultKubelet asks nothing. The file is where Kubernetes puts the token of a pod.
func DefaultKubelet() Kubelet {
	return Kubelet{TokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token", Verify: true}
}

// Validate implements conf.Validator.
func (c Kubelet) Validate() (problems []conf.Problem) {
	if c.URL == "" {
		return nil
	}
	if u, err := url.Parse(c.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		problems = append(problems, conf.Problem{Key: "url", Text: "must be http://HOST:PORT or https://HOST:PORT, such as " +
			"https://10.0.0.1:10250"})
	}
	return problems
}
