package main

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// built returns the files of the site.
func built(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	check(t, build("../..", dir))
	all := map[string]string{}
	check(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		name, _ = filepath.Rel(dir, name)
		all[name] = string(text)
		return err
	}))
	return all
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	reference = regexp.MustCompile(`(?:href|src|srcset)="([^"]*)"`)
	loaded    = regexp.MustCompile(`(?:src|srcset)="https?:|<link [^>]*href="https?:`)
	id        = regexp.MustCompile(`id="([^"]+)"`)
)

// Each link of the site to itself has a target, also behind the #. No page loads anything from elsewhere.
func TestLinksOfTheSite(t *testing.T) {
	all := built(t)
	ids := map[string][]string{}
	for name, text := range all {
		for _, m := range id.FindAllStringSubmatch(text, -1) {
			if slices.Contains(ids[name], m[1]) && strings.HasSuffix(name, ".html") {
				t.Errorf("%s has the id %s twice", name, m[1])
			}
			ids[name] = append(ids[name], m[1])
		}
	}
	links := 0
	for name, text := range all {
		if !strings.HasSuffix(name, ".html") {
			continue
		}
		if strings.Contains(text, ` style="`) {
			t.Errorf("%s has a style that its Content-Security-Policy forbids", name)
		}
		if found := loaded.FindString(text); found != "" {
			t.Errorf("%s loads %s", name, found)
		}
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], ":") { // another server
				continue
			}
			links++
			file, fragment, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if _, there := all[target]; !there {
				t.Errorf("%s: %s leads nowhere", name, m[1])
			} else if fragment != "" && !slices.Contains(ids[target], fragment) {
				t.Errorf("%s: %s has no such section", name, m[1])
			}
		}
	}
	if links < 2000 {
		t.Errorf("found only %d links", links)
	}
}

// The navigation leads to every page of the manual.
func TestNavigation(t *testing.T) {
	all := built(t)
	_, nav, _ := strings.Cut(all["index.html"], "<nav")
	nav, _, _ = strings.Cut(nav, "</nav>")
	for name := range all {
		if strings.HasSuffix(name, ".html") && !strings.Contains(nav, `"`+name+`"`) &&
			!slices.Contains([]string{"readme.html", "changelog.html", "security.html", "contents.html"}, name) {
			t.Errorf("docs/README.md, which is the navigation, does not list %s", name)
		}
	}
}

func TestTheSameFilesMakeTheSameSite(t *testing.T) {
	first, second := built(t), built(t)
	for name, text := range first {
		if second[name] != text {
			t.Errorf("%s differs", name)
		}
	}
}

// Headings are named as on GitHub, whose links into pages then work here.
func TestHeadings(t *testing.T) {
	source := "# A `b` c\n\n## [One](one.md), two: *3* & 4\n\n## Same\n\n## Same\n\n## snake_case 10s\n"
	p, err := parse("docs/x.md", []byte(source))
	check(t, err)
	text, err := p.html(nil)
	check(t, err)
	var got []string
	for _, m := range id.FindAllSubmatch(text, -1) {
		got = append(got, string(m[1]))
	}
	if want := []string{"a-b-c", "one-two-3--4", "same", "same-1", "snake_case-10s"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A link to a file that is no page leads to the repository, and a comment is not on the site.
func TestLinksToTheRepository(t *testing.T) {
	source := "# X\n\n[a](../lab/a.go) [b](https://b.example/) [c](#x)\n\n<!-- not run: no -->\n"
	p, err := parse("docs/x.md", []byte(source))
	check(t, err)
	text, err := p.html(map[string]*page{})
	check(t, err)
	for _, want := range []string{repository + "/blob/main/lab/a.go", `"https://b.example/"`, `"#x"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(string(text), "not run") {
		t.Errorf("a comment is shown: %s", text)
	}
}

// Each picture of the manual exists for both themes, and is small.
func TestPicturesAreSmall(t *testing.T) {
	for name := range pictures {
		for _, theme := range []string{"light", "dark"} {
			info, err := os.Stat(filepath.Join("../../docs/pictures", name+"-"+theme+".png"))
			if err != nil || info.Size() > largestPicture {
				t.Errorf("%s, %s: %v, %v; run: make pictures", name, theme, info, err)
			}
		}
	}
}

// A picture keeps its frequent colours, and the upper rows.
func TestPicture(t *testing.T) {
	whole := image.NewRGBA(image.Rect(0, 0, 40, 40))
	for i := range 40 * 40 {
		c := color.RGBA{R: uint8(i), G: uint8(i / 256), A: 255}
		if i%40 < 20 {
			c = color.RGBA{R: 1, G: 2, B: 3, A: 255}
		}
		whole.Set(i%40, i/40, c)
	}
	var b bytes.Buffer
	check(t, png.Encode(&b, whole))
	text, err := picture(b.Bytes(), 30)
	check(t, err)
	small, err := png.Decode(bytes.NewReader(text))
	check(t, err)
	if got := small.Bounds().Max; got != image.Pt(40, 30) {
		t.Errorf("the picture has %v", got)
	}
	if r, g, bl, _ := small.At(3, 3).RGBA(); r>>8 != 1 || g>>8 != 2 || bl>>8 != 3 {
		t.Errorf("the most frequent colour became %v", small.At(3, 3))
	}
}
