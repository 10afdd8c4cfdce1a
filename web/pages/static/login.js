"use strict";
// The key stands in the fragment, which no server and no log sees; the button, not this script, spends it.
const field = document.getElementById("key");
const take = () => {
  if (location.hash.length > 20) {
    field.value = decodeURIComponent(location.hash.slice(1));
    history.replaceState(null, "", location.pathname + location.search);
    document.querySelector(".door button").focus();
  }
};
addEventListener("hashchange", take);
take();
