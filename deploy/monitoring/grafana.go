package main

import (
	"encoding/json"
	"fmt"
)

// object is an object in Grafana's JSON.
type object = map[string]any

const (
	gridWidth   = 24 // columns in the grid of a dashboard
	panelHeight = 7
)

// source is the Prometheus data source that the user chose.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// grafana returns the dashboard in Grafana's import format.
func (d dashboard) grafana() []byte {
	var panels []object
	id, y := 0, 0
	place := func(p object, x, width, height int) {
		id++
		p["id"], p["gridPos"] = id, object{"x": x, "y": y, "w": width, "h": height}
		panels = append(panels, p)
	}
	for _, r := range d.Rows {
		if r.Title != "" {
			place(object{"type": "row", "title": r.Title, "collapsed": false, "panels": []object{}}, 0, gridWidth, 1)
			y++
		}
		width := gridWidth / len(r.Panels)
		for i, p := range r.Panels {
			place(p.grafana(), i*width, width, panelHeight)
		}
		y += panelHeight
	}
	text, err := json.MarshalIndent(object{
		"uid": d.UID, "title": d.Title, "description": d.About, "tags": []string{"freshet"},
		"schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1, "refresh": "10s",
		"time": object{"from": "now-15m", "to": "now"}, "timezone": "browser",
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
				"current": object{"text": "Freshet itself", "value": selfUID}}, // without it, Grafana takes another source
			{"name": "instance", "label": "Instance", "type": "query", "datasource": source, "refresh": 2, "includeAll": true,
				"multi": true, "allValue": ".*",
				"definition": `label_values(up{job="freshet"}, instance)`,
				"query":      object{"query": `label_values(up{job="freshet"}, instance)`, "refId": "instances"},
				"current":    object{"text": "All", "value": "$__all"}},
		}},
		"annotations": object{"list": []object{}},
		"panels":      panels,
	}, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("BUG: %v", err))
	}
	return append(text, '\n')
}

func (p panel) grafana() object {
	var targets []object
	for i, q := range p.Queries {
		targets = append(targets,
			object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.Expr, "legendFormat": q.Legend})
	}
	return object{
		"type": "timeseries", "title": p.Title, "description": p.About, "datasource": source, "targets": targets,
		"fieldConfig": object{"defaults": object{"unit": p.Unit, "min": 0,
			"custom": object{"fillOpacity": 8, "lineWidth": 1, "showPoints": "never"}}, "overrides": []object{
			{"matcher": object{"id": "byName", "options": "budget"}, "properties": []object{
				{"id": "color", "value": object{"mode": "fixed", "fixedColor": "red"}},
				{"id": "custom.lineStyle", "value": object{"fill": "dash"}},
			}},
		}},
		"options": object{
			"legend":  object{"showLegend": true, "displayMode": "list", "placement": "bottom", "calcs": []string{}},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		},
	}
}
