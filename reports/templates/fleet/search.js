// Finds nodes by a part of their name in what nodes.js lists; without scripts the lists remain.
(function () {
  "use strict";
  var box = document.getElementById("search"), list = document.getElementById("found");
  var up = document.documentElement.getAttribute("data-up") || "";
  if (!box || !list || !window.benchNodes) { return; }
  function show() {
    var wanted = box.value.trim().toLowerCase(), shown = 0, all = 0;
    list.textContent = "";
    if (!wanted) { return; }
    window.benchNodes.forEach(function (node) {
      if (node[0].toLowerCase().indexOf(wanted) < 0 && node[1].toLowerCase().indexOf(wanted) < 0) { return; }
      all += 1;
      if (shown === 12) { return; }
      shown += 1;
      var item = document.createElement("li"), link = document.createElement("a");
      link.href = up + "nodes/" + node[0] + ".html";
      link.textContent = node[0] + " (" + node[2] + ")";
      item.appendChild(link);
      list.appendChild(item);
    });
    if (all !== shown || !all) {
      var rest = document.createElement("li"), text = document.createElement("span");
      text.textContent = all ? all - shown + " more: type more of the name" : "no node has this in its name";
      rest.appendChild(text);
      list.appendChild(rest);
    }
  }
  box.closest(".search").hidden = false;
  box.addEventListener("input", show);
  box.addEventListener("keydown", function (event) {
    var first = list.querySelector("a");
    if (event.key === "Enter" && first) { window.location.href = first.href; }
    if (event.key === "Escape") { box.value = ""; show(); }
  });
})();
