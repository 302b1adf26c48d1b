package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// alertmanagerBinary is the Alertmanager that `make clients` installs.
const alertmanagerBinary = "../.cache/alertmanager"

// notification is an alert as an Alertmanager shows it.
type notification struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	EndsAt       time.Time         `json:"endsAt"`
	StartsAt     time.Time         `json:"startsAt"`
	GeneratorURL string            `json:"generatorURL"`
}

// startAlertmanager starts an Alertmanager at an address, with the configuration of the manual, and waits until it
// answers.
func startAlertmanager(t *testing.T, address string) *process {
	t.Helper()
	dir := dataDir(t)
	config := filepath.Join(dir, "alertmanager.yml")
	write(t, config, shown(t, "docs/alerts.md", "yaml alertmanager"))
	p := &process{dataDir: dir, output: &output{}, exited: make(chan struct{})}
	p.HTTP = address
	p.cmd = exec.Command(alertmanagerBinary, "--config.file", config, "--storage.path", dir,
		"--web.listen-address", address, "--cluster.listen-address", "")
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start an Alertmanager, which `make clients` installs: %v", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("the Alertmanager printed:\n%s", p.output)
		}
	})
	eventually(t, startLimit, "the Alertmanager is ready", func() error {
		_, err := p.get("/-/ready", nil)
		return err
	})
	return p
}

// freeAddress returns an address of loopback at which nobody listens. Its host is random, and connections have
// 127.0.0.1, so none takes the port before the test's program does.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), 1+rand.IntN(254), 1+rand.IntN(254)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// firing returns the alerts of an Alertmanager that fire, by name.
func (p *process) firing() (map[string]notification, error) {
	body, err := p.get("/api/v2/alerts", url.Values{"active": {"true"}})
	if err != nil {
		return nil, err
	}
	var list []notification
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("%w in %s", err, body)
	}
	all := map[string]notification{}
	for _, n := range list {
		all[n.Labels["alertname"]] = n
	}
	return all, nil
}

// ruleServer starts a server whose rules are in the file rules.yaml of its data directory.
func ruleServer(t *testing.T, rules string, alertmanagers ...string) (p *process, file string) {
	t.Helper()
	dir := dataDir(t)
	file = filepath.Join(dir, "rules.yaml")
	write(t, file, rules)
	config := filepath.Join(dir, "freshet.yaml")
	notify := ""
	if len(alertmanagers) > 0 {
		notify = fmt.Sprintf("  alertmanagers: [{targets: [%s]}]\n", strings.Join(alertmanagers, ", "))
	}
	write(t, config, fmt.Sprintf("rules:\n  files: [%s/*.yaml.rules, %s]\n  external_labels: {site: test}\n"+
		"  external_url: https://freshet.example/f\n%s", dir, file, notify))
	return start(t, dir, "--config", config), file
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const someRules = `
groups:
- name: recorded
  interval: 1s
  rules:
  - {record: "level:sum", expr: sum(level)}
  - {record: "level:double", expr: "2 * level:sum"}
- name: alerts
  interval: 1s
  rules:
  - alert: LevelHigh
    expr: level:double > 10
    labels: {severity: page}
    annotations: {summary: "{{ $value }} at {{ $externalLabels.site }}, of {{ with query \"level:sum\" }}{{ . | first | value }}{{ end }}"}
  - {alert: Never, expr: level:double < 0}
`

// TestRulesNotifyAnAlertmanager checks rules from a file to a real Alertmanager: recordings that read each
// other, an alert with its labels, annotations and link, its end, and the answers of the API.
func TestRulesNotifyAnAlertmanager(t *testing.T) {
	t.Parallel() // it mostly waits
	am := startAlertmanager(t, freeAddress(t))
	p, _ := ruleServer(t, someRules, am.HTTP)
	conn := dialTap(t, "udp", p.UDP)
	set := func(level int) {
		if _, err := fmt.Fprintf(conn, "level:%d|g", level); err != nil {
			t.Fatal(err)
		}
	}
	set(7)
	eventually(t, time.Minute, "the alert fires", func() error {
		all, err := am.firing()
		if err != nil {
			return err
		}
		n, fires := all["LevelHigh"]
		if !fires || len(all) != 1 {
			return fmt.Errorf("firing are %v", all)
		}
		switch {
		case n.Labels["site"] != "test" || n.Labels["severity"] != "page":
			t.Errorf("labels %v lack those of the rule and of the configuration", n.Labels)
		case n.Annotations["summary"] != "14 at test, of 7":
			t.Errorf("annotations %v, want the rendered template", n.Annotations)
		case n.GeneratorURL != "https://freshet.example/f/explore?q=level%3Adouble+%3E+10":
			t.Errorf("the alert links to %s, want Explore", n.GeneratorURL)
		}
		return nil
	})
	// A rule notifies before it writes its result.
	eventually(t, 30*time.Second, "the alert is a series, too", func() error {
		return p.expect(`ALERTS{alertname="LevelHigh",alertstate="firing"}`, 1, 0)
	})

	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct{ Name, Type, State, Health string }
		}
		GroupNextToken string
	}
	if err := p.ask("/api/v1/rules", url.Values{"type": {"alert"}, "rule_name[]": {"LevelHigh"}}, &rules); err != nil ||
		len(rules.Groups) != 1 || len(rules.Groups[0].Rules) != 1 || rules.Groups[0].Rules[0].State != "firing" ||
		rules.Groups[0].Rules[0].Health != "ok" {
		t.Errorf("filtered rules: %+v, error %v", rules, err)
	}
	if err := p.ask("/api/v1/rules", url.Values{"group_limit": {"1"}}, &rules); err != nil || len(rules.Groups) != 1 ||
		rules.GroupNextToken == "" {
		t.Errorf("the first page of groups: %+v, error %v", rules, err)
	}
	var active struct {
		ActiveAlertmanagers []struct{ URL string }
	}
	if err := p.ask("/api/v1/alertmanagers", nil, &active); err != nil || len(active.ActiveAlertmanagers) != 1 ||
		active.ActiveAlertmanagers[0].URL != "http://"+am.HTTP+"/api/v2/alerts" {
		t.Errorf("Alertmanagers: %+v, error %v", active, err)
	}

	set(1)
	eventually(t, time.Minute, "the alert is resolved", func() error {
		all, err := am.firing()
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("firing are %v", all)
		}
		return err
	})
}

// TestBadRulesChangeNothing checks that a reload of rules with mistakes names all of them, and that the
// rules from before go on.
func TestBadRulesChangeNothing(t *testing.T) {
	t.Parallel()
	p, file := ruleServer(t, someRules)
	write(t, file, "groups:\n- name: g\n  rules:\n  - {record: a, expr: sum(}\n  - {alert: B, expr: rate(b)}\n")
	status, text := p.post(t, "/-/reload")
	for _, want := range []string{"nothing has changed", "4:", "5:", `"a"`, `"B"`} {
		if status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("the reload answers %d without %q: %s", status, want, text)
		}
	}
	groups := func() (names []string) {
		var rules struct{ Groups []struct{ Name string } }
		if err := p.ask("/api/v1/rules", nil, &rules); err != nil {
			t.Error(err)
		}
		for _, g := range rules.Groups {
			names = append(names, g.Name)
		}
		return names
	}
	if got := fmt.Sprint(groups()); got != "[alerts recorded]" {
		t.Errorf("groups %s after a bad reload, want those from before", got)
	}
	write(t, file, "groups: [{name: new, interval: 1s, rules: [{record: seven, expr: vector(7)}]}]")
	if status, text := p.post(t, "/-/reload"); status != http.StatusOK {
		t.Fatalf("the reload answers %d: %s", status, text)
	}
	if got := fmt.Sprint(groups()); got != "[new]" {
		t.Errorf("groups %s, want the new one", got)
	}
	eventually(t, 30*time.Second, "the new rule has a result", func() error {
		v, err := p.value("seven")
		if err == nil && v != 7 {
			err = errors.New("it is " + fmt.Sprint(v))
		}
		return err
	})
}
