package helm

import (
	"os"
	"regexp"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// shown returns the blocks of a kind in the manual's page.
func shown(t *testing.T, kind string) (all []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/kubernetes.md")
	check(t, err)
	for _, m := range regexp.MustCompile("(?ms)^```"+kind+"\n(.*?)^```$").FindAllSubmatch(page, -1) {
		all = append(all, string(m[1]))
	}
	if len(all) == 0 {
		t.Fatalf("docs/kubernetes.md has no blocks of %s", kind)
	}
	return all
}

// The chart takes the values that the manual shows.
func TestValuesOfTheManual(t *testing.T) {
	c := loadChart(t)
	for _, text := range shown(t, "yaml values") {
		var values map[string]any
		check(t, yaml.UnmarshalStrict([]byte(text), &values))
		values["image"] = anyImage
		if _, err := render(c, values); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	}
}

// A pod may have the fields that the manual shows. They lead to the collectors' sockets and ports.
func TestPodsOfTheManual(t *testing.T) {
	collector := pods(t, "cluster")["freshet-collector"].Spec
	var sockets string
	for _, v := range collector.Volumes {
		if v.Name == "sockets" {
			sockets = v.HostPath.Path
		}
	}
	for _, text := range shown(t, "yaml pod") {
		var pod struct {
			Env          []core.EnvVar      `json:"env"`
			VolumeMounts []core.VolumeMount `json:"volumeMounts"`
			Volumes      []core.Volume      `json:"volumes"`
		}
		if err := yaml.UnmarshalStrict([]byte(text), &pod); err != nil {
			t.Errorf("%s\n%v", text, err)
			continue
		}
		for i, v := range pod.Volumes {
			if v.HostPath.Path != sockets || pod.VolumeMounts[i].Name != v.Name {
				t.Errorf("the manual's pod mounts %s, but the sockets are in %s", v.HostPath.Path, sockets)
			}
		}
		for _, e := range pod.Env {
			if strings.HasPrefix(e.Value, "unix:") && !strings.HasPrefix(e.Value, "unix://"+sockets+"/") {
				t.Errorf("the manual's pod sends to %s, but the sockets are in %s", e.Value, sockets)
			}
		}
	}
}
