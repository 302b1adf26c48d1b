package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// document is a page of docs that is a man page, too.
type document struct {
	file    string // in docs
	name    string // of the man page
	section int
	summary string
}

// documents are the pages that operators want on a machine without the site.
var documents = []document{
	{"getting-started.md", "freshet", 7, "getting started"},
	{"configuration.md", "freshet-configuration", 5, "settings of the server"},
	{"names.md", "freshet-names", 7, "how a line becomes a series, and rules"},
	{"tiles.md", "freshet-tiles", 7, "what a query returns, kind by kind"},
	{"dogstatsd.md", "freshet-dogstatsd", 7, "the lines that are understood"},
	{"alerts.md", "freshet-alerts", 7, "rules, recordings and Alertmanagers"},
	{"limits.md", "freshet-limits", 7, "how many series there may be"},
	{"operations.md", "freshet-operations", 7, "sizing, backup, access, and what to do"},
	{"upgrade.md", "freshet-upgrade", 7, "upgrades without loss"},
	{"cluster.md", "freshet-cluster-guide", 7, "three machines with a whole copy each"},
}

// docPages returns the man pages of documents by file name.
func docPages(source string, day time.Time) (map[string][]byte, error) {
	pages := map[string][]byte{}
	for _, d := range documents {
		markdown, err := os.ReadFile(filepath.Join(source, "docs", d.file))
		if err != nil {
			return nil, err
		}
		pages[fmt.Sprintf("%s.%d", d.name, d.section)] = d.roff(markdown, day)
	}
	return pages, nil
}

// roff returns a document as a man page.
func (d document) roff(markdown []byte, day time.Time) []byte {
	w := &roffWriter{source: markdown}
	fmt.Fprintf(&w.out, ".TH \"%s\" \"%d\" \"%s\" \"Freshet\" \"Freshet's manual\"\n.ad l\n.SH NAME\n%s \\- %s\n",
		strings.ToUpper(d.name), d.section, day.Format("Jan 2006"), escape(d.name), escape(d.summary))
	parser := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser()
	w.blocks(parser.Parse(text.NewReader(markdown)))
	return w.out.Bytes()
}

// roffWriter writes blocks of Markdown in the language of man pages, see man(7). go-md2man, which cobra uses for the
// pages of commands, does not fit the manual: its tables are wider than a terminal, and links between documents break
// their rows.
type roffWriter struct {
	source []byte
	out    bytes.Buffer
}

// blocks writes the blocks in a node.
func (w *roffWriter) blocks(n ast.Node) {
	for b := n.FirstChild(); b != nil; b = b.NextSibling() {
		switch b := b.(type) {
		case *ast.Heading:
			w.heading(b)
		case *ast.Paragraph, *ast.TextBlock:
			w.out.WriteString(".PP\n")
			w.line(w.inline(b))
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			w.code(b)
		case *ast.List:
			w.list(b)
		case *ast.Blockquote:
			w.out.WriteString(".RS 4\n")
			w.blocks(b)
			w.out.WriteString(".RE\n")
		case *extast.Table:
			w.table(b)
		}
	}
}

// heading leaves out the first level: it is the page's name.
func (w *roffWriter) heading(h *ast.Heading) {
	switch h.Level {
	case 1:
		w.out.WriteString(".SH DESCRIPTION\n")
	case 2:
		w.out.WriteString(".SH ")
		w.line(escape(strings.ToUpper(plain(h, w.source))))
	default:
		w.out.WriteString(".SS ")
		w.line(escape(plain(h, w.source)))
	}
}

func (w *roffWriter) code(b ast.Node) {
	w.out.WriteString(".PP\n.RS 4\n.nf\n")
	for line := range strings.Lines(string(b.Lines().Value(w.source))) {
		w.line(escape(strings.TrimSuffix(line, "\n")))
	}
	w.out.WriteString(".fi\n.RE\n")
}

func (w *roffWriter) list(l *ast.List) {
	n := l.Start
	for item := l.FirstChild(); item != nil; item = item.NextSibling() {
		mark := `\(bu 2`
		if l.IsOrdered() {
			mark = fmt.Sprintf("%d. 4", n)
			n++
		}
		fmt.Fprintf(&w.out, ".IP %s\n", mark)
		first := item.FirstChild()
		if first == nil {
			continue
		}
		w.line(w.inline(first))
		if first.NextSibling() != nil {
			item.RemoveChild(item, first)
			w.out.WriteString(".RS 4\n")
			w.blocks(item)
			w.out.WriteString(".RE\n")
		}
	}
}

// table writes a row as a term and its explanation: the columns of a table of text do not fit a terminal.
func (w *roffWriter) table(t *extast.Table) {
	var heads []string
	for row := t.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		for c := row.FirstChild(); c != nil; c = c.NextSibling() {
			cells = append(cells, w.inline(c))
		}
		if row.Kind() == extast.KindTableHeader {
			heads = cells
			continue
		}
		w.out.WriteString(".TP\n")
		w.line(cells[0])
		for i, cell := range cells[1:] {
			if cell == "" {
				continue
			}
			if len(cells) > 2 && heads[i+1] != "" {
				cell = heads[i+1] + ": " + cell
			}
			if i > 0 {
				w.out.WriteString(".br\n")
			}
			w.line(cell)
		}
	}
}

// line writes a line that is no request, whatever it begins with.
func (w *roffWriter) line(s string) {
	if strings.HasPrefix(s, ".") { // escape has changed the other sign of a request
		w.out.WriteString(`\&`)
	}
	w.out.WriteString(s + "\n")
}

// inline returns the text of a block, with its fonts. A link keeps its text, and its address if that is elsewhere.
func (w *roffWriter) inline(n ast.Node) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			b.WriteString(escape(string(c.Segment.Value(w.source))))
			if c.SoftLineBreak() || c.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.WriteString(escape(string(c.Value)))
		case *ast.CodeSpan:
			b.WriteString(`\fB` + escape(plain(c, w.source)) + `\fR`)
		case *ast.Emphasis:
			b.WriteString(map[int]string{1: `\fI`, 2: `\fB`}[c.Level] + escape(plain(c, w.source)) + `\fR`)
		case *ast.Link:
			b.WriteString(w.inline(c))
			if to := string(c.Destination); strings.Contains(to, "://") {
				b.WriteString(" (" + escape(to) + ")")
			}
		case *ast.AutoLink:
			b.WriteString(escape(string(c.URL(w.source))))
		case *ast.RawHTML:
		default:
			b.WriteString(w.inline(c))
		}
	}
	return b.String()
}

// plain returns the text below a node, neither escaped nor with fonts.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, is := n.(*ast.Text); is && entering {
			b.Write(t.Segment.Value(source))
			if t.SoftLineBreak() {
				b.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil // never an error
	})
	return b.String()
}

// escape returns text as roff prints it. A minus is no hyphen, so that commands can be copied.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", `\(ga`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`).Replace(s)
}
